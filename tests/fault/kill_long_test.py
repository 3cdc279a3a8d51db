#!/usr/bin/env python3
"""Fifty kills at random moments; see kill_test.py."""

import sys

import kill_test

if __name__ == "__main__":
    sys.argv = [sys.argv[0], "50"]
    kill_test.main()
