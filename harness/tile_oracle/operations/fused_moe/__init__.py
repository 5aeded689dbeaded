"""One product of a mixture of experts: every token by the weights of the experts that it is routed to."""
