"""Steps of recurrent layers."""

# A network whose steps are written one after the other holds the operators of each: more take minutes to compile.
MOST_STEPS = 256
