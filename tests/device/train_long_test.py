#!/usr/bin/env python3
"""Five seeds; see train_test.py."""

import sys

import train_test

if __name__ == "__main__":
    sys.argv = [sys.argv[0], "5"]
    train_test.main()
