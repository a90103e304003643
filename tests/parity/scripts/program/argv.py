# arguments: one "two words" 3
# sys.argv as it was given.
import os
import sys

print("=", os.path.basename(sys.argv[0]), sys.argv[1:])
