"""The crawler: makes problem sets from the convolutions of published architectures, traced without weights.

catalogue: the architectures and their resolutions. trace: the convolutions of one architecture. trace_file:
stored traces. synthetic: additional problems of rare kinds. select: sampling of the sets. write: the CSV
files. Only catalogue and trace need PyTorch and the model libraries.
"""
