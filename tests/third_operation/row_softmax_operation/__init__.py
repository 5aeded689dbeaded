"""Row-wise softmax for the target cpu: an operation as another distribution would add it."""
