from grouped_conv_utils import GroupedConvProblem

FORWARD = [GroupedConvProblem(N=1, C=64, K=64, Hi=14, Wi=14, Y=3, X=3, pad_h=1, pad_w=1)]
