// Every call that sets something up fails in turn: the text says what and where and what to do, and
// nothing is left behind.
#include <cerrno>
#include <cstring>

#include "tests/unit/verbs/support.h"

namespace selmcast::verbs_test {
namespace {

/// All that sets up: two ranks, memory, endpoints, memberships, a way to read. The first error, or
/// an empty text.
Error everything(const std::string& devices, bool shared) {
  std::vector<std::byte> memory(4096), landing(4096);
  auto a = try_open(devices, shared);
  if (!a) return std::move(a).error();
  auto b = try_open(devices, shared);
  if (!b) return std::move(b).error();
  auto sendable = (*a)->register_memory(memory);
  if (!sendable) return std::move(sendable).error();
  auto readable = (*b)->abilities().reads->register_readable(memory);
  if (!readable) return std::move(readable).error();
  auto into = (*a)->abilities().reads->register_target(landing);
  if (!into) return std::move(into).error();
  auto to_b = (*a)->connect((*b)->address());
  if (!to_b) return std::move(to_b).error();
  auto to_a = (*b)->connect((*a)->address());
  if (!to_a) return std::move(to_a).error();
  auto group = (*a)->join({3}, JoinAs::receiver);
  if (!group) return std::move(group).error();
  auto sender = (*b)->join({3}, JoinAs::send_only);
  if (!sender) return std::move(sender).error();
  std::array<Completion, 16> out;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (!(*a)->abilities().reads->can_read(to_b->id()) && std::chrono::steady_clock::now() < end) {
    (*a)->poll(out);
    (*b)->poll(out);
    std::this_thread::sleep_for(milliseconds(1));
  }
  if (!(*a)->abilities().reads->can_read(to_b->id())) return failed("no way to read");
  return failed("");
}

struct Case {
  std::string devices;
  bool shared;
};

class SetUpErrors : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override { fake::reset(2); }
};

// What may fail once without an Error: entries of a table, and what is tried again.
bool recovers(const std::string& call, const std::string& what) {
  if (call == "ibv_query_gid_ex" || call == "ibv_query_device_ex") return true;
  if (what != "wiring up") return false;
  return call == "ibv_create_qp" || call == "ibv_modify_qp" || call == "ibv_post_send" ||
         call == "ibv_post_recv";
}

// Each transport makes its rails first, then a watch for the removal of each, which it can do
// without.
bool is_of_watch(const std::string& call, int number, const std::string& devices) {
  if (call != "rdma_create_event_channel" && call != "rdma_create_id" && call != "rdma_bind_addr") {
    return false;
  }
  const int rails = devices.find('+') == std::string::npos ? 1 : 2;
  return (number - 1) / rails % 2 == 1;
}

TEST_P(SetUpErrors, EachCallFailingLeavesNothingBehind) {
  const auto& [devices, shared] = GetParam();
  fake::world().calls.clear();
  ASSERT_EQ(everything(devices, shared).message, "");
  expect_nothing_alive("a run without an error");
  auto calls = fake::world().calls;
  ASSERT_GE(calls.size(), 18U);
  // Calls up to here happen before anything is wired up.
  std::map<std::string, int> before;
  fake::reset(2);
  {
    auto a = try_open(devices, shared), b = try_open(devices, shared);
    auto to = (*a)->connect((*b)->address());
    auto back = (*b)->connect((*a)->address());
    auto group = (*a)->join({3}, JoinAs::receiver), sender = (*b)->join({3}, JoinAs::send_only);
    before = fake::world().calls;
  }
  for (const auto& [call, count] : calls) {
    // Reads of events and completions are the data path's.
    if (call == "ibv_poll_cq" || call == "ibv_req_notify_cq") continue;
    // Nothing but repetition lies beyond.
    for (int at = 1; at <= std::min(count, 60); ++at) {
      for (const int error : {EPERM, ENOMEM, EMFILE, ENODEV, EINVAL, ETIMEDOUT}) {
        const std::string what =
            call + " number " + std::to_string(at) + ": " + std::strerror(error);
        SCOPED_TRACE(what);
        fake::reset(2);
        fake::world().fail(call, at, error);
        const Error got = everything(devices, shared);
        expect_nothing_alive(what);
        if (HasFailure()) return;
        const auto known = before.find(call);
        const bool late = known == before.end() || at > known->second;
        if (got.message.empty()) {
          const bool fewer_inline = call == "ibv_create_qp" && error == EINVAL;
          const bool asked_again = call == "ibv_create_ah" && error == ETIMEDOUT;
          EXPECT_TRUE(fewer_inline || asked_again || is_of_watch(call, at, devices) ||
                      recovers(call, late ? "wiring up" : "setting up"));
          continue;
        }
        EXPECT_THAT(got.message, testing::HasSubstr(std::strerror(error)));
        if (call != "ibv_get_device_list") {
          EXPECT_THAT(got.message, testing::HasSubstr("fake"));
        }
        const bool lacks = error == EPERM || error == ENOMEM || error == EMFILE;
        if (lacks) {
          EXPECT_EQ(got.kind, ErrorKind::unavailable);
        } else {
          EXPECT_NE(got.kind, ErrorKind::bad_input);
        }
        const std::map<int, std::string> remedies{
            {EPERM, "/dev/infiniband"}, {ENOMEM, "ulimit -l"},   {EMFILE, "ulimit -n"},
            {ENODEV, "dmesg"},          {EINVAL, "ibv_devinfo"}, {ETIMEDOUT, "port 4791"}};
        EXPECT_THAT(got.message, testing::HasSubstr(remedies.at(error)));
      }
    }
  }
}

std::string name_of(const testing::TestParamInfo<Case>& info) {
  return (info.param.devices == "fake0" ? std::string("OneDevice") : std::string("TwoDevices")) +
         (info.param.shared ? "Shared" : "Own");
}

INSTANTIATE_TEST_SUITE_P(All, SetUpErrors,
                         testing::Values(Case{"fake0", true}, Case{"fake0", false},
                                         Case{"fake0+fake1", true}),
                         name_of);

TEST(SetUpErrorTexts, NameTheCall) {
  const std::vector<std::pair<std::string, std::string>> texts{
      {"ibv_get_device_list", "devices cannot be listed"},
      {"ibv_open_device", "fake0 cannot be opened"},
      {"ibv_query_device", "fake0 cannot be queried"},
      {"ibv_query_port", "fake0 port 1 cannot be queried"},
      {"ibv_alloc_pd", "ibv_alloc_pd on fake0 port 1 GID 1 (::ffff:10.0.0.1)"},
      {"ibv_create_comp_channel", "ibv_create_comp_channel on fake0"},
      {"ibv_create_cq", "ibv_create_cq on fake0"},
      {"ibv_reg_mr", "bytes for receives on fake0"},
      {"ibv_create_srq", "ibv_create_srq on fake0"},
      {"ibv_post_srq_recv", "posting receives on fake0"},
      {"ibv_create_qp", "creating a UD queue pair"},
      {"ibv_modify_qp", "bringing up a UD queue pair"},
      {"ibv_post_recv", "posting receives for messages on fake0"},
      {"rdma_create_event_channel", "rdma_create_event_channel on fake0"},
      {"rdma_create_id", "rdma_create_id on fake0"},
      {"rdma_bind_addr", "rdma_bind_addr to 10.0.0.1 on fake0"},
      {"rdma_join_multicast_ex", "joining group 239."},
      {"rdma_get_cm_event", "joining group 239."},
      {"ibv_attach_mcast", "attaching to group ::ffff:239."},
      {"ibv_create_ah", "finding the way to ::ffff:10.0.0.1 on fake0"}};
  for (const auto& [call, text] : texts) {
    fake::reset();
    fake::world().fail(call, 1, ENOMEM);
    const Error got = everything("fake0", true);
    EXPECT_THAT(got.message, testing::HasSubstr(text)) << call;
    EXPECT_EQ(got.message.find('\n'), std::string::npos);
  }
  expect_nothing_alive("all texts");
}

TEST(SetUpErrorTexts, AQuestionForThePeersAddressThatWasLostIsAskedAgain) {
  fake::reset();
  for (const int lost : {1, 3}) {
    fake::world().fail("ibv_create_ah", 1, ETIMEDOUT, lost);
    EXPECT_EQ(everything("fake0", true).message, "") << lost;
  }
  fake::world().fail("ibv_create_ah", 1, ETIMEDOUT, 4);
  EXPECT_THAT(everything("fake0", true).message,
              testing::HasSubstr("finding the way to ::ffff:10.0.0.1 on fake0"));
  expect_nothing_alive("lost questions");
}

TEST(SetUpErrorTexts, InlineBytesShrinkToWhatTheDeviceHas) {
  fake::reset();
  fake::world().devices[0].inline_most = 60;
  EXPECT_EQ(everything("fake0", true).message, "");
  fake::world().devices[0].inline_most = 0;
  EXPECT_EQ(everything("fake0", true).message, "");
  expect_nothing_alive("devices with few inline bytes");
}

TEST(SetUpErrorTexts, AShortCompletionQueueIsRefused) {
  fake::reset();
  fake::world().devices[0].max_cqe = 1000;
  const Error got = everything("fake0", true);
  EXPECT_EQ(got.kind, ErrorKind::unavailable);
  EXPECT_THAT(got.message, testing::HasSubstr("completion queues of 1000 entries"));
  expect_nothing_alive("a short completion queue");
}

TEST(SetUpErrorTexts, WithoutSharedQueuesEachQueuePairHasItsOwn) {
  fake::reset();
  fake::world().devices[0].max_srq = 0;
  EXPECT_EQ(everything("fake0", true).message, "");
  EXPECT_EQ(fake::world().calls["ibv_create_srq"], 0);
}

TEST(SetUpErrorTexts, MoreGroupsThanBuffersIsAnErrorAndTheRestGoesOn) {
  fake::reset();
  RankOn rank("fake0", false);
  std::vector<Membership> joined;
  // 2048 buffers, 256 each, one share for unicast.
  for (std::uint32_t g = 0; g < 7; ++g) joined.push_back(rank.join(g));
  const auto eighth = rank.transport->join({7}, JoinAs::receiver);
  ASSERT_FALSE(eighth);
  EXPECT_THAT(eighth.error().message, testing::HasSubstr("no receive buffers left"));
  joined.pop_back();
  rank.poll();
  EXPECT_TRUE(rank.transport->join({7}, JoinAs::receiver));
}

}  // namespace
}  // namespace selmcast::verbs_test
