class Refined:
    pass
