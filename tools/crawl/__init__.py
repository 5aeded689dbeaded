"""The crawler: convolutions of published architectures, traced without weights, chosen into problem sets.

catalogue: which architectures there are and their resolutions. trace: the convolutions that one of them
runs. trace_file: what was traced, kept. synthetic: deliberate additions. select: which problems go into
which set. Only catalogue and trace need PyTorch and the model libraries.
"""
