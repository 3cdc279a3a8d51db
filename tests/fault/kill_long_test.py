#!/usr/bin/env python3
"""Thirty kills at random moments; see kill_test.py."""

import sys

import kill_test

if __name__ == "__main__":
    sys.argv = [sys.argv[0], "30"]
    kill_test.main()
