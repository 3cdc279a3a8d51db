#include "tests/faulty/faulty_transport.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/random.h"

namespace selmcast {
namespace {

constexpr std::uint32_t kNone = ~std::uint32_t{0};
constexpr std::size_t kScratch = 64;      // Completions taken from the inner transport at a time.
constexpr std::uint32_t kHeldMost = 16;   // Completions held back at once.
constexpr std::uint32_t kHeldBehind = 4;  // A held one waits for 1 to this many others,
constexpr std::uint32_t kHeldPolls = 8;   // or for this many polls without news.
constexpr std::uint32_t kCopies = 32;     // Corrupted private copies lent at once.

bool is_chance(double value) noexcept {
  return value >= 0.0 && value <= 1.0;
}

class FaultyTransport final : public Transport {
 public:
  FaultyTransport(std::unique_ptr<Transport> inner, const FaultPlan& plan);

  PeerAddress address() const override { return inner_->address(); }
  Result<Region> register_memory(std::span<const std::byte> memory) override {
    return inner_->register_memory(memory);
  }
  Result<Endpoint> connect(const PeerAddress& peer) override { return inner_->connect(peer); }
  Result<Membership> join(GroupAddress group, JoinAs as) override {
    return inner_->join(group, as);
  }
  PostOutcome post_sends(std::span<const SendRequest> requests) noexcept override;
  PostOutcome post_receives(std::span<const ReceiveRequest> requests) noexcept override;
  std::size_t poll(std::span<Completion> out) noexcept override;
  void wait(Duration at_most) noexcept override {
    if (ready() == 0 && held_.empty() && give_back_.empty()) inner_->wait(at_most);
  }
  void wake() noexcept override { inner_->wake(); }
  TransportCounters counters() const noexcept override { return inner_->counters(); }
  std::string last_error() const override { return inner_->last_error(); }
  std::vector<std::string> notices() const override { return inner_->notices(); }

 protected:
  // Handles are the inner transport's own; none ever names this one.
  void release(detail::HandleKind, std::uint32_t) noexcept override {}

 private:
  /// What one token of ours stands for: a share of an inner buffer, or a private copy.
  struct Lent {
    std::uint32_t loan = kNone;
    std::uint32_t copy = kNone;
    bool lent = false;
  };
  /// An inner buffer on loan to us, returned when its last share comes back.
  struct Loan {
    std::uint32_t inner_token = 0;
    std::uint32_t shares = 0;
  };
  struct Held {
    Completion completion;
    std::uint32_t behind = 0;  ///< Receive completions that must come first.
  };

  std::size_t ready() const noexcept { return ready_.size() - ready_head_; }
  std::size_t drain(std::span<Completion> out) noexcept;
  void take(const Completion& inner) noexcept;
  void receive(const Completion& inner) noexcept;
  void corrupt(Completion& completion) noexcept;
  void deliver(const Completion& completion) noexcept;
  void age_held() noexcept;
  void settle(std::uint32_t token) noexcept;
  void drop_share(std::uint32_t loan) noexcept;
  void flush_give_back() noexcept;
  bool chance(double probability) noexcept {
    return probability > 0.0 && random_.chance(probability);
  }

  std::unique_ptr<Transport> inner_;
  FaultPlan plan_;
  SplitMix64 random_;
  std::vector<Completion> ready_;
  std::size_t ready_head_ = 0;
  std::vector<Held> held_;
  std::uint32_t idle_polls_ = 0;
  std::vector<Lent> lent_;
  std::vector<std::uint32_t> free_tokens_;
  std::vector<Loan> loans_;
  std::vector<std::uint32_t> free_loans_;
  std::vector<std::byte> copies_;
  std::vector<std::uint32_t> free_copies_;
  std::vector<ReceiveRequest> give_back_;
};

std::vector<std::uint32_t> numbers_below(std::uint32_t count) {
  std::vector<std::uint32_t> out(count);
  for (std::uint32_t i = 0; i < count; ++i) out[i] = count - 1 - i;
  return out;
}

FaultyTransport::FaultyTransport(std::unique_ptr<Transport> inner, const FaultPlan& plan)
    : inner_(std::move(inner)), plan_(plan), random_(plan.seed) {
  SELMCAST_CHECK(inner_ != nullptr, "nothing to decorate");
  SELMCAST_CHECK(is_chance(plan.drop) && is_chance(plan.duplicate) && is_chance(plan.reorder) &&
                     is_chance(plan.corrupt) && is_chance(plan.backpressure),
                 "faults are chances within [0, 1]");
  capabilities_ = inner_->capabilities();
  // Faults are injected into frames only, and buffers are lent under tokens of ours.
  abilities_.pacing = inner_->abilities().pacing;
  if (plan.drop > 0.0 || plan.duplicate > 0.0 || plan.reorder > 0.0 || plan.corrupt > 0.0)
    capabilities_.loses_frames = true;
  if (plan.corrupt > 0.0) capabilities_.checks_payload = false;
  const std::uint32_t buffers = capabilities_.receive_buffers;
  ready_.reserve(3 * kScratch + kHeldMost);
  held_.reserve(kHeldMost);
  // A duplicate needs a second token, a private copy one that outlives its inner buffer.
  lent_.resize(std::size_t{buffers} * 2 + kCopies);
  free_tokens_ = numbers_below(static_cast<std::uint32_t>(lent_.size()));
  loans_.resize(buffers);
  free_loans_ = numbers_below(buffers);
  give_back_.reserve(buffers);
  if (plan.corrupt > 0.0) {
    copies_.resize(std::size_t{capabilities_.max_request_bytes} * kCopies);
    free_copies_ = numbers_below(kCopies);
  }
}

PostOutcome FaultyTransport::post_sends(std::span<const SendRequest> requests) noexcept {
  if (chance(plan_.backpressure)) return {0, PostState::backpressure};
  return inner_->post_sends(requests);
}

PostOutcome FaultyTransport::post_receives(std::span<const ReceiveRequest> requests) noexcept {
  for (const ReceiveRequest& request : requests) {
    SELMCAST_CHECK(request.token < lent_.size() && lent_[request.token].lent,
                   "a receive buffer was given back that was not lent");
    settle(request.token);
  }
  flush_give_back();
  return {static_cast<std::uint32_t>(requests.size()), PostState::accepted};
}

void FaultyTransport::settle(std::uint32_t token) noexcept {
  const Lent was = std::exchange(lent_[token], Lent{});
  free_tokens_.push_back(token);
  if (was.copy != kNone) free_copies_.push_back(was.copy);
  if (was.loan != kNone) drop_share(was.loan);
}

void FaultyTransport::drop_share(std::uint32_t loan) noexcept {
  if (--loans_[loan].shares > 0) return;
  give_back_.push_back({loans_[loan].inner_token});
  free_loans_.push_back(loan);
}

void FaultyTransport::flush_give_back() noexcept {
  if (give_back_.empty()) return;
  const PostOutcome outcome = inner_->post_receives(give_back_);
  give_back_.erase(give_back_.begin(), give_back_.begin() + outcome.accepted);
}

std::size_t FaultyTransport::drain(std::span<Completion> out) noexcept {
  const std::size_t n = std::min(out.size(), ready());
  std::copy_n(ready_.begin() + static_cast<std::ptrdiff_t>(ready_head_), n, out.begin());
  ready_head_ += n;
  if (ready() == 0) {
    ready_.clear();
    ready_head_ = 0;
  }
  return n;
}

std::size_t FaultyTransport::poll(std::span<Completion> out) noexcept {
  flush_give_back();
  std::size_t n = drain(out);
  while (n < out.size()) {
    Completion scratch[kScratch];
    const std::size_t got = inner_->poll(std::span(scratch, std::min(out.size() - n, kScratch)));
    for (std::size_t i = 0; i < got; ++i) take(scratch[i]);
    if (got == 0) {
      age_held();
      if (ready() == 0) break;
    }
    flush_give_back();
    n += drain(out.subspan(n));
  }
  return n;
}

void FaultyTransport::take(const Completion& inner) noexcept {
  if (inner.kind == Completion::Kind::receive)
    receive(inner);
  else
    ready_.push_back(inner);
}

void FaultyTransport::receive(const Completion& inner) noexcept {
  idle_polls_ = 0;
  if (chance(plan_.drop)) {
    give_back_.push_back({inner.token});
    return;
  }
  const std::uint32_t loan = free_loans_.back();
  free_loans_.pop_back();
  loans_[loan] = {inner.token, 1};
  Completion first = inner;
  first.token = free_tokens_.back();
  free_tokens_.pop_back();
  lent_[first.token] = {loan, kNone, true};
  Completion second = inner;
  const bool twice = chance(plan_.duplicate) && !free_tokens_.empty();
  if (twice) {
    ++loans_[loan].shares;
    second.token = free_tokens_.back();
    free_tokens_.pop_back();
    lent_[second.token] = {loan, kNone, true};
  }
  if (chance(plan_.corrupt)) corrupt(first);
  if (chance(plan_.reorder) && held_.size() < kHeldMost)
    held_.push_back({first, 1 + static_cast<std::uint32_t>(random_.below(kHeldBehind))});
  else
    deliver(first);
  if (twice) deliver(second);
}

void FaultyTransport::corrupt(Completion& completion) noexcept {
  SELMCAST_CHECK(completion.head_bytes == 0, "only frames that were copied are corrupted");
  if (free_copies_.empty() || completion.bytes == 0 ||
      completion.bytes > capabilities_.max_request_bytes)
    return;
  const std::uint32_t copy = free_copies_.back();
  free_copies_.pop_back();
  std::byte* data = copies_.data() + std::size_t{copy} * capabilities_.max_request_bytes;
  std::memcpy(data, completion.data, completion.bytes);
  const std::uint64_t bit = random_() % (std::uint64_t{completion.bytes} * 8U);
  data[bit / 8U] ^= std::byte{1} << (bit % 8U);
  Lent& lent = lent_[completion.token];
  drop_share(std::exchange(lent.loan, kNone));
  lent.copy = copy;
  completion.data = data;
}

void FaultyTransport::deliver(const Completion& completion) noexcept {
  ready_.push_back(completion);
  for (std::size_t i = 0; i < held_.size();) {
    if (--held_[i].behind > 0) {
      ++i;
      continue;
    }
    ready_.push_back(held_[i].completion);
    held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

void FaultyTransport::age_held() noexcept {
  if (held_.empty() || ++idle_polls_ < kHeldPolls) return;
  for (const Held& held : held_) ready_.push_back(held.completion);
  held_.clear();
  idle_polls_ = 0;
}

}  // namespace

std::unique_ptr<Transport> make_faulty_transport(std::unique_ptr<Transport> inner,
                                                 const FaultPlan& plan) {
  return std::make_unique<FaultyTransport>(std::move(inner), plan);
}

}  // namespace selmcast
