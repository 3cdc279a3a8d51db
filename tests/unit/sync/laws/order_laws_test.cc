// Laws of the Order axis, on the chunks that layers post: what goes first, that nobody starves, and
// that credit is never exceeded. Every order stands once in orders().
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "base/random.h"
#include "base/shuffle.h"
#include "bench/null_transport.h"
#include "sync/rounds/lock_step.h"

namespace selmcast {
namespace {

constexpr std::uint32_t kJob = 9;
constexpr std::size_t kLayers = 6;
constexpr std::uint32_t kPayload = 1432, kChunk = 4;

/// Posts of data, in order: which layer and which of its frames.
class Recorder final : public NullTransport {
 public:
  struct Post {
    std::uint16_t layer;
    std::uint64_t first, end;  ///< Bytes of the layer.
  };
  PostOutcome post_sends(std::span<const SendRequest> requests) noexcept override {
    for (const SendRequest& request : requests) note(request);
    return NullTransport::post_sends(requests);
  }

  std::vector<Post> posts;

 private:
  void note(const SendRequest& request) {
    for (std::size_t s = 0; s + 1 < request.slices.size(); s += 2) {
      std::vector<std::byte> frame(request.slices[s].data,
                                   request.slices[s].data + request.slices[s].bytes);
      frame.insert(frame.end(), request.slices[s + 1].data,
                   request.slices[s + 1].data + request.slices[s + 1].bytes);
      const auto parsed = parse_frame(frame, kJob);
      ASSERT_EQ(parsed.error, FrameError::none);
      const auto& h = parsed.header;
      if (s == 0) posts.push_back({h.stream, h.offset, h.offset});
      EXPECT_EQ(posts.back().layer, h.stream);
      posts.back().end = h.offset + h.length;
    }
  }
};

/// One rank that sends layers to another, which is the test.
class OneSender {
 public:
  OneSender(OrderKind order, const std::vector<std::size_t>& sizes) : sizes_(sizes) {
    gradients_.resize(std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}));
    config_.job = kJob;
    config_.world = 2;
    config_.mix = MixKind::sgd;
    config_.order = order;
    config_.layers = sizes;
    config_.timeout = std::chrono::hours(1);
    port_ = FramePort::make(transport, {kJob, 0, 2, kFrameHeaderBytes + kPayload, kChunk, kLayers})
                .value();
    EXPECT_TRUE(port_->connect(1, {}));
    const StreamShape shape{gradients_.size() * sizeof(float), kPayload, kChunk};
    memory_ = RoundMemory::make(transport, config_, shape, gradients_).value();
    reports_.emplace(*port_, config_, kPayload);
    app_.emplace(kLayers, Elements{0, gradients_.size()}, 2);
    rounds_.emplace(RoundContext{*port_, config_, *memory_, *reports_, *app_, mail_});
    enter_epoch();
  }
  void push(std::size_t layer) { app_->push_layer(layer); }
  bool done() const { return app_->closed().load() == 1; }
  void control(FrameKind kind, std::size_t layer, std::uint64_t offset) {
    const FrameHeader header{.kind = kind,
                             .job = kJob,
                             .sender = 1,
                             .stream = static_cast<std::uint16_t>(layer),
                             .epoch = 1,
                             .offset = offset};
    rounds_->find(1)->streams[layer].sender->on_control(header, {}, now);
  }
  std::uint64_t bytes(std::size_t layer) const { return sizes_[layer] * sizeof(float); }
  void turn() {
    rounds_->progress(now);
    port_->flush();
    std::array<Completion, 64> completions;
    for (std::size_t n; (n = transport.poll(completions)) > 0;) {
      for (const Completion& c : std::span(completions).first(n)) port_->on_send_completion(c);
    }
  }

  Recorder transport;
  TimePoint now{};

 private:
  void enter_epoch() {
    auto epoch = std::make_unique<EpochState>();
    epoch->program.epoch = 1;
    epoch->program.members = {0, 1};
    epoch->program.add_round({100'000, 1});
    const Rank other = 1;
    epoch->program.send_each({}, {&other, 1});
    mail_.epochs().offer(std::move(epoch));
    auto taken = mail_.epochs().take();
    EXPECT_TRUE(prepare(*taken, *port_, config_, *memory_));
    mail_.epochs().accept(rounds_->offer(std::move(taken)));
    mail_.epochs().activate(0);
    EXPECT_EQ(rounds_->read_mail(), 1U);
    EXPECT_TRUE(mail_.epochs().switched());
  }

  std::vector<std::size_t> sizes_;
  std::vector<float> gradients_;
  DriverConfig config_;
  DriverMail mail_{2};
  std::unique_ptr<FramePort> port_;
  std::unique_ptr<RoundMemory> memory_;
  std::optional<RoundReports> reports_;
  std::optional<HandOver> app_;
  std::optional<LockStep> rounds_;
};

struct Case {
  std::vector<std::size_t> sizes, pushed;            ///< Layers, in the order of their pushes.
  std::map<std::size_t, std::size_t> pushed_before;  ///< Layer -> posts that there were by then.
  std::vector<Recorder::Post> posts;
};

/// Layers of random sizes pushed in a random order at random times; credit comes in steps or at
/// once.
Case play(OrderKind order, std::uint64_t seed, bool credit_at_once) {
  SplitMix64 random(seed);
  Case out;
  for (std::size_t l = 0; l < kLayers; ++l) out.sizes.push_back(1 + random.below(20'000));
  out.pushed.resize(kLayers);
  std::vector<std::uint32_t> drawn(kLayers);
  std::iota(drawn.begin(), drawn.end(), 0U);
  shuffle(drawn, random);
  out.pushed.assign(drawn.begin(), drawn.end());
  OneSender sender(order, out.sizes);
  std::vector<std::uint64_t> credit(kLayers, 0);
  std::vector<bool> acked(kLayers, false);
  std::size_t pushed = 0;
  for (int turn = 0; turn < 20'000 && !sender.done(); ++turn) {
    sender.now += std::chrono::microseconds(random.below(400));
    if (pushed < kLayers && random.below(20) == 0) {
      out.pushed_before[out.pushed[pushed]] = sender.transport.posts.size();
      sender.push(out.pushed[pushed++]);
    }
    for (std::size_t l = 0; l < kLayers; ++l) {
      const std::uint64_t whole = sender.bytes(l);
      if (credit[l] < whole && (credit_at_once || random.below(10) == 0)) {
        const std::uint64_t frames = 1 + random.below(12);
        credit[l] = credit_at_once ? whole : std::min(whole, credit[l] + frames * kPayload);
        sender.control(FrameKind::credit, l, credit[l]);
      }
    }
    const auto before = sender.transport.posts.size();
    sender.turn();
    for (std::size_t p = before; p < sender.transport.posts.size(); ++p) {
      const auto& post = sender.transport.posts[p];
      EXPECT_LE(post.end, credit[post.layer]) << "beyond the credit of layer " << post.layer;
      if (post.end == sender.bytes(post.layer)) acked[post.layer] = true;
    }
    for (std::size_t l = 0; l < kLayers; ++l) {
      if (acked[l]) sender.control(FrameKind::ack, l, 0);
    }
  }
  EXPECT_TRUE(sender.done()) << "a layer starved";
  out.posts = sender.transport.posts;
  return out;
}

class OrderLaws : public testing::TestWithParam<OrderKind> {};

TEST_P(OrderLaws, EveryByteGoesOutOnceAndNobodyStarves) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const auto played = play(GetParam(), seed, seed % 2 == 0);
    std::vector<std::uint64_t> sent(kLayers, 0);
    for (const auto& post : played.posts) {
      EXPECT_EQ(post.first, sent[post.layer]) << "layer " << post.layer;
      sent[post.layer] = post.end;
    }
    for (std::size_t l = 0; l < kLayers; ++l) {
      EXPECT_EQ(sent[l], played.sizes[l] * sizeof(float));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, OrderLaws, testing::Values(OrderKind::fifo, OrderKind::priority));

// What is ready goes before everything that it outranks, but for the chunk that was posted already.
TEST(OrderLaw, PriorityIsInvertedByNoChunkAfterTheHandOver) {
  std::size_t overtaken = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const auto played = play(OrderKind::priority, seed, true);
    for (std::size_t p = 0; p < played.posts.size(); ++p) {
      const auto low = played.posts[p].layer;
      for (std::size_t high = 0; high < low; ++high) {
        if (p < played.pushed_before.at(high)) continue;
        const bool left =
            std::any_of(played.posts.begin() + static_cast<std::ptrdiff_t>(p), played.posts.end(),
                        [&](const auto& post) { return post.layer == high; });
        EXPECT_FALSE(left) << "layer " << low << " went before what was left of layer " << high;
      }
      if (p > 0 && played.posts[p - 1].layer > low) ++overtaken;
    }
  }
  EXPECT_GT(overtaken, 60U) << "no layer ever overtook another: the law was not tried";
}

TEST(OrderLaw, FifoSendsLayersWholeInTheOrderOfTheHandOver) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const auto played = play(OrderKind::fifo, seed, true);
    std::vector<std::size_t> order;
    for (const auto& post : played.posts) {
      if (order.empty() || order.back() != post.layer) order.push_back(post.layer);
    }
    EXPECT_EQ(order, played.pushed);
  }
}

}  // namespace
}  // namespace selmcast
