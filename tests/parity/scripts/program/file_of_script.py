# __file__ and __name__.
import os

print("=", os.path.basename(__file__), __name__)
with open(__file__) as file:
    print("=", file.readline().strip())
