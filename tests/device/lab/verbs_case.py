"""A test case that runs jobs over verbs in guests and looks at what they left."""

import os
import tempfile
import unittest

import guests
import verbs_jobs

COUNT = 30_003
SCALE = int(os.environ.get("SELMCAST_RESNET_SCALE", "16"))  # What emulation bears.


class Jobs(unittest.TestCase):
    @classmethod
    def run_script(cls, script, ranks, kbps=200_000, timeout=450, **options):
        cls.temporary = tempfile.TemporaryDirectory(prefix="selmcast-verbs-")
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.folder = cls.temporary.name
        links = verbs_jobs.links(cls.folder, ranks, kbps)
        cls.resnet50, cls.elements = verbs_jobs.resnet50_file(cls.folder, SCALE)
        script = script(links)
        cls.ends = guests.run_in_guests(script, timeout=timeout, exchange=cls.folder, **options)

    def text(self, name):
        return verbs_jobs.text(self.folder, name)

    def finished(self, name, status="status", failed=(), err="err"):
        """The document of a job that ended with status 0 and verified."""
        self.assertEqual(self.text(f"{name}.{status}"), "0",
                         f"{self.text(f'{name}.{err}')}\n{self.ends}")
        document = verbs_jobs.document(self.folder, name)
        self.assertTrue(document["verified"])
        self.assertEqual(document["failed_ranks"], list(failed))
        return document

    def recomputed(self, name, count=COUNT, **more):
        document = self.finished(name, **more)
        self.assertLess(verbs_jobs.worst_difference(self.folder, name, count), 1e-5)
        return document
