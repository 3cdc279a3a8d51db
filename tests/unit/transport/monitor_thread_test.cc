// A machine that has no thread left for the monitor of memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <csignal>

#include "transport/verbs/memory_monitor.h"

namespace selmcast::verbs {
namespace {

TEST(MonitorThread, ARefusedThreadIsAnErrorAndSignalsStayAsTheyWere) {
  pthread_attr_t before, huge;
  ASSERT_EQ(pthread_getattr_default_np(&before), 0);
  ASSERT_EQ(pthread_getattr_default_np(&huge), 0);
  // A stack as large as all addresses that a process has.
  ASSERT_EQ(pthread_attr_setstacksize(&huge, std::size_t{1} << 47U), 0);
  ASSERT_EQ(pthread_setattr_default_np(&huge), 0);
  const auto monitor = MemoryMonitor::shared();
  EXPECT_EQ(pthread_setattr_default_np(&before), 0);
  pthread_attr_destroy(&huge);
  pthread_attr_destroy(&before);
  ASSERT_FALSE(monitor);
  EXPECT_EQ(monitor.error().kind, ErrorKind::unavailable);
  EXPECT_THAT(monitor.error().message, testing::HasSubstr("no thread"));
  sigset_t blocked;
  ASSERT_EQ(pthread_sigmask(SIG_SETMASK, nullptr, &blocked), 0);
  EXPECT_EQ(sigismember(&blocked, SIGUSR1), 0);
}

}  // namespace
}  // namespace selmcast::verbs
