# arguments: --no-such-option
# argparse ends with 2.
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--day")
print("= before")
parser.parse_args()
print("= never")
