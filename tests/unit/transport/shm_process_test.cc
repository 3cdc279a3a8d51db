// Ranks in processes of their own: what happens when one is killed, ends, or leaves in good order.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/transport/shm_support.h"

namespace selmcast::test {
namespace {

/// A child process that ends with the test in any case.
class Child {
 public:
  /// `body` runs in the child; its value is the exit status.
  explicit Child(const std::function<int()>& body) : pid_(::fork()) {
    if (pid_ == 0) ::_exit(body());
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      reap();
    }
  }
  void kill_now() { ::kill(pid_, SIGKILL); }
  /// Exit status, or -1 if a signal ended it.
  int reap() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t pid_;
};

/// The parent is rank 0; a child is rank 1, sends its address through a pipe and then does `act`.
class ShmProcesses : public testing::Test {
 protected:
  ShmProcesses() : parent(open_test_shm(0, 2)) { EXPECT_EQ(::pipe(pipe_), 0); }
  ~ShmProcesses() override {
    ::close(pipe_[0]);
    ::close(pipe_[1]);
  }

  int run_child(const std::function<int(Node&, const Endpoint&, Region&)>& act) {
    Node self(open_test_shm(1, 2));
    const PeerAddress own = self.transport->address();
    const Endpoint to_parent = connect_test(*self.transport, parent.transport->address());
    auto region = self.transport->register_memory(memory);
    if (!region || ::write(pipe_[1], &own, sizeof own) != sizeof own) return 9;
    return act(self, to_parent, *region);
  }
  void connect_to_child() {
    PeerAddress address;
    ASSERT_EQ(::read(pipe_[0], &address, sizeof address), static_cast<ssize_t>(sizeof address));
    to_child = connect_test(*parent.transport, address);
  }
  bool say_go() {
    auto region = parent.transport->register_memory(memory);
    const LocalSlice byte{memory.data(), 1, region->id()};
    return parent.send(Destination::to(to_child), byte).accepted == 1;
  }

  Node parent;
  std::vector<std::byte> memory = std::vector<std::byte>(60'000, std::byte{42});
  Endpoint to_child;
  int pipe_[2] = {-1, -1};
};

TEST_F(ShmProcesses, DataCrossesBothWays) {
  Child child([&] {
    return run_child([&](Node& self, const Endpoint& to, Region& region) {
      if (!self.until([&] { return !self.arrived.empty(); })) return 1;
      for (int i = 0; i < 50;) {
        i += static_cast<int>(
            self.send(Destination::to(to), {memory.data(), 60'000, region.id()}, 8'000).accepted);
        self.poll();
      }
      return 0;
    });
  });
  connect_to_child();
  ASSERT_TRUE(say_go());
  ASSERT_TRUE(parent.until([&] { return parent.arrived.size() == 50; }));
  for (const Arrived& one : parent.arrived) EXPECT_EQ(one.bytes, memory);
  EXPECT_EQ(child.reap(), 0);
}

TEST_F(ShmProcesses, KilledPeerIsLostOnceAfterWhatItSent) {
  Child child([&] {
    return run_child([&](Node& self, const Endpoint& to, Region& region) {
      for (int i = 0; i < 3; ++i) {
        self.send(Destination::to(to), {memory.data(), 60'000, region.id()}, 8'000);
      }
      while (true) self.transport->wait(1s);
      return 0;
    });
  });
  connect_to_child();
  parent.hold = true;
  ASSERT_TRUE(parent.until([&] { return parent.arrived.size() == 3; }));
  child.kill_now();
  child.reap();
  ASSERT_TRUE(parent.until([&] { return !parent.lost.empty(); }));
  EXPECT_EQ(parent.lost[0].user, to_child.id());
  EXPECT_EQ(parent.lost[0].status, Status::peer_lost);
  for (const auto token : parent.held) parent.give_back(token);
  EXPECT_FALSE(parent.until([&] { return parent.lost.size() > 1; }, 30ms));
  ASSERT_TRUE(say_go()) << "a post to the dead is taken and completes with an error";
  parent.poll();
  ASSERT_FALSE(parent.sent.empty());
  EXPECT_EQ(parent.sent.back().status, Status::peer_lost);
  EXPECT_NE(parent.transport->last_error().find("rank 1"), std::string::npos);
}

TEST_F(ShmProcesses, DataSentJustBeforeTheKillIsHandedOutBeforeTheLoss) {
  Child child([&] {
    return run_child([&](Node& self, const Endpoint& to, Region& region) {
      self.until([&] { return !self.arrived.empty(); });
      self.send(Destination::to(to), {memory.data(), 60'000, region.id()}, 8'000);
      ::kill(::getpid(), SIGKILL);
      return 0;
    });
  });
  connect_to_child();
  ASSERT_TRUE(say_go());
  // Nothing is polled before the child is gone: its data could be handed out here already.
  ASSERT_EQ(child.reap(), -1);
  Completion out[1];
  std::vector<Completion::Kind> kinds;
  const TimePoint deadline = SteadyClock().now() + 10s;
  while (kinds.size() < 2 && SteadyClock().now() < deadline) {
    if (parent.transport->poll(out) != 1 || out[0].kind == Completion::Kind::send) continue;
    kinds.push_back(out[0].kind);
  }
  EXPECT_EQ(kinds, (std::vector{Completion::Kind::receive, Completion::Kind::lost}));
}

TEST_F(ShmProcesses, KilledPeerIsNoticedInALongWait) {
  Child child([&] {
    return run_child([&](Node& self, const Endpoint&, Region&) {
      while (true) self.transport->wait(1s);
      return 0;
    });
  });
  connect_to_child();
  child.kill_now();
  const auto start = std::chrono::steady_clock::now();
  parent.transport->wait(30s);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 15s);
  parent.poll();
  EXPECT_EQ(parent.lost.size(), 1U);
}

TEST_F(ShmProcesses, KilledMemberWithAFullRingDoesNotHoldTheGroupBack) {
  Child child([&] {
    return run_child([&](Node& self, const Endpoint& to, Region& region) {
      const auto member = self.transport->join({2}, JoinAs::receiver);
      self.send(Destination::to(to), {memory.data(), 1, region.id()});
      while (member) ::pause();
      return 0;
    });
  });
  connect_to_child();
  ASSERT_TRUE(parent.until([&] { return !parent.arrived.empty(); }));
  auto group = parent.transport->join({2}, JoinAs::send_only);
  auto region = parent.transport->register_memory(memory);
  ASSERT_TRUE(group && region);
  const LocalSlice slice{memory.data(), 60'000, region->id()};
  const auto post = [&] { return parent.send(Destination::to(*group), slice, 8'000).accepted; };
  int posted = 0;
  while (post() == 1) ++posted;
  EXPECT_EQ(posted, 4) << "the child never reads";
  child.kill_now();
  ASSERT_TRUE(parent.until([&] { return post() == 1; }));
}

TEST_F(ShmProcesses, PeerThatLeavesInGoodOrderIsNotLost) {
  Child child([&] {
    return run_child([&](Node& self, const Endpoint& to, Region& region) {
      self.send(Destination::to(to), {memory.data(), 100, region.id()});
      return self.until([&] { return !self.arrived.empty(); }) ? 0 : 1;
    });
  });
  connect_to_child();
  ASSERT_TRUE(say_go());
  EXPECT_EQ(child.reap(), 0);
  EXPECT_FALSE(parent.until([&] { return !parent.lost.empty(); }, 60ms));
  EXPECT_EQ(parent.arrived.size(), 1U);
  ASSERT_TRUE(say_go());
  parent.poll();
  EXPECT_EQ(parent.sent.back().status, Status::closed);
}

TEST_F(ShmProcesses, AddressOfADeadProcessIsRefused) {
  Child child([&] { return run_child([](Node&, const Endpoint&, Region&) { return 0; }); });
  ASSERT_EQ(child.reap(), 0);
  PeerAddress address;
  ASSERT_EQ(::read(pipe_[0], &address, sizeof address), static_cast<ssize_t>(sizeof address));
  const auto connected = parent.transport->connect(address);
  ASSERT_FALSE(connected);
  EXPECT_NE(connected.error().message.find("rank 1"), std::string::npos);
  EXPECT_NE(connected.error().message.find("gone"), std::string::npos);
}

TEST_F(ShmProcesses, ForkedChildDoesNotSayGoodbyeForItsParent) {
  Node second(open_test_shm(1, 2));
  const Endpoint to_second = connect_test(*parent.transport, second.transport->address());
  Child child([&] {
    second.transport.reset();
    return 0;
  });
  ASSERT_EQ(child.reap(), 0);
  auto region = parent.transport->register_memory(memory);
  ASSERT_TRUE(region);
  parent.send(Destination::to(to_second), {memory.data(), 10, region->id()});
  parent.poll();
  ASSERT_EQ(parent.sent.size(), 1U);
  EXPECT_EQ(parent.sent[0].status, Status::ok);
}

}  // namespace
}  // namespace selmcast::test
