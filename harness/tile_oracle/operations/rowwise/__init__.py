"""What softmax and rms_norm share: operations on each row of a dense matrix."""
