"""`measure` in a worker of pytest-xdist: it asks the controller, through a channel of execnet."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from tile_oracle.errors import HarnessError
from tile_oracle.kernel import Kernel, parse_kernel_name
from tile_oracle.measure.measurement import Measurement
from tile_oracle.problem import Problem, problem_from_id
from tile_oracle.session.live import LiveSession

if TYPE_CHECKING:
    from execnet.gateway_base import BaseGateway, Channel


class AskingSession(LiveSession):
    """The session of a worker: the devices of its controller measure."""

    def __init__(self, *given: Any, channel: Channel, **process: Any) -> None:
        """channel: to the controller. given, process: see Session. Raises HarnessError."""
        super().__init__(*given, **process)
        self._channel = channel

    def measure(self, problem: Problem, kernel: Kernel) -> Measurement:
        return cast(Measurement, self._ask("measure", problem.id, kernel.name))

    def goes_on(self, problem: Problem, kernel: Kernel) -> bool:
        return bool(self._ask("goes_on", problem.id, kernel.name))

    def _ask(self, *question: str) -> object:
        self._channel.send(pickle.dumps(question))
        answer = pickle.loads(self._channel.receive())
        if isinstance(answer, Exception):
            raise answer
        return answer

    def build_ahead(self) -> None:
        return


class Answers:
    """The controller's end: answers its workers. A question may wait long, so each has a thread."""

    def __init__(self, session: LiveSession) -> None:
        self._session = session
        self._threads = ThreadPoolExecutor(max_workers=256, thread_name_prefix="tile-oracle-answers")

    def channel_from(self, gateway: BaseGateway) -> Channel:
        """Returns a channel for one worker, to be sent to it."""
        channel = gateway.newchannel()
        channel.setcallback(lambda asked: self._threads.submit(self._answer, channel, asked))
        return channel

    def _answer(self, channel: Channel, question: bytes) -> None:
        what, problem, kernel = pickle.loads(question)
        answer: object
        try:
            answer = getattr(self._session, what)(problem_from_id(problem), parse_kernel_name(kernel))
        except HarnessError as error:
            answer = error
        with suppress(OSError):  # the worker has died
            channel.send(pickle.dumps(answer))
