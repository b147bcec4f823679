"""A queue's spec, as both reconcilers read it: what is wrong with it, and what its objects are called. Pure."""
