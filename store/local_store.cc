#include <map>
#include <vector>

#include "base/check.h"
#include "store/protocol.h"
#include "store/rendezvous.h"

namespace selmcast {

struct LocalStore::State {
  explicit State(std::uint32_t world)
      : lost(world, false), taken(world, false), left(world, false) {}

  std::map<std::string, Bytes, std::less<>> values;
  std::vector<bool> lost;
  std::vector<bool> taken;
  std::vector<bool> left;
  std::uint64_t changes = 0;  ///< What clients could have heard of.
};

namespace {

/// Reads the one copy directly: every write is heard by all at once, hence in the same order.
template <class State>
class LocalClient final : public Rendezvous {
 public:
  LocalClient(std::shared_ptr<State> state, Rank rank) : state_(std::move(state)), rank_(rank) {}
  ~LocalClient() override {
    if (!state_->left[rank_] && !state_->lost[rank_]) {
      state_->lost[rank_] = true;
      ++state_->changes;
    }
  }

  Rank rank() const noexcept override { return rank_; }
  std::uint32_t world() const noexcept override {
    return static_cast<std::uint32_t>(state_->lost.size());
  }
  Result<void> put(std::string_view key, std::span<const std::byte> value) override {
    return write(key, value, false);
  }
  Result<void> create(std::string_view key, std::span<const std::byte> value) override {
    return write(key, value, true);
  }
  std::optional<Bytes> try_get(std::string_view key) const override {
    const auto found = state_->values.find(key);
    if (found == state_->values.end() || store::is_result_key(key)) return std::nullopt;
    return found->second;
  }
  Result<bool> update(Duration) override {
    if (state_->lost[rank_]) return lost_error();
    const bool changed = heard_ != state_->changes;
    heard_ = state_->changes;
    return changed;
  }
  bool lost(Rank rank) const noexcept override {
    return rank < state_->lost.size() && state_->lost[rank];
  }
  void leave() noexcept override { state_->left[rank_] = true; }

 private:
  Error lost_error() const {
    return failed("rank " + std::to_string(rank_) + " was declared lost by the store");
  }
  Result<void> write(std::string_view key, std::span<const std::byte> value, bool only_if_absent) {
    if (state_->lost[rank_]) return lost_error();
    if (auto ok = store::check_pair(key, value.size()); !ok) return ok;
    const auto found = state_->values.find(key);
    if (found != state_->values.end() && only_if_absent) return {};
    state_->values.insert_or_assign(std::string(key), Bytes(value.begin(), value.end()));
    if (!store::is_result_key(key)) ++state_->changes;
    return {};
  }

  std::shared_ptr<State> state_;
  Rank rank_;
  std::uint64_t heard_ = 0;
};

}  // namespace

LocalStore::LocalStore(std::uint32_t world) : state_(std::make_shared<State>(world)) {}
LocalStore::~LocalStore() = default;

std::unique_ptr<Rendezvous> LocalStore::client(Rank rank) {
  SELMCAST_CHECK(rank < state_->taken.size(), "rank below the world size");
  SELMCAST_CHECK(!state_->taken[rank], "one client per rank");
  state_->taken[rank] = true;
  return std::make_unique<LocalClient<State>>(state_, rank);
}

void LocalStore::declare_lost(Rank rank) {
  if (rank >= state_->lost.size() || state_->lost[rank] || state_->left[rank]) return;
  state_->lost[rank] = true;
  ++state_->changes;
}

std::optional<Bytes> LocalStore::get(std::string_view key) const {
  const auto found = state_->values.find(key);
  if (found == state_->values.end()) return std::nullopt;
  return found->second;
}

}  // namespace selmcast
