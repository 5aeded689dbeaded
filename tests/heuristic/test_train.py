from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pandas as pd
import pytest

from harness.errors import ModelError
from harness.heuristic.predictor import Predictor
from harness.heuristic.recipe import RECIPES, recipe_named
from harness.heuristic.train import Effort, cross_validate, out_of_fold, train
from harness.heuristic.training_rows import training_rows

