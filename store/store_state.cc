#include "store/store_state.h"

#include <algorithm>

namespace selmcast::store {
namespace {

// Bounds on what clients can make the server hold.
constexpr std::uint64_t kCopiedBytesMax = 256ULL << 20U;
constexpr std::uint64_t kResultBytesMax = 4ULL << 30U;
/// A client that lets this much pile up does not read; the snapshot at its start fits.
constexpr std::size_t kOutboxMax = 2 * kCopiedBytesMax;

std::shared_ptr<const Bytes> shared(Bytes bytes) {
  return std::make_shared<const Bytes>(std::move(bytes));
}

std::string number(std::uint64_t value) {
  return std::to_string(value);
}

}  // namespace

void Outbox::push(std::shared_ptr<const Bytes> message) {
  bytes += message->size();
  messages.push_back(std::move(message));
}

void Outbox::consume(std::size_t count) {
  sent_of_first += count;
  while (!messages.empty() && sent_of_first >= messages.front()->size()) {
    sent_of_first -= messages.front()->size();
    bytes -= messages.front()->size();
    messages.pop_front();
  }
}

StoreState::StoreState(std::uint32_t world)
    : standing_(world, Standing::absent), client_of_(world, nullptr) {}

bool StoreState::receive(Client& client, Message& message) {
  if (client.closing) return true;
  if (!client.rank) {
    if (message.kind != MessageKind::hello) return false;
    std::string refusal = refusal_of(message);
    if (refusal.empty()) {
      welcome(client, message.rank);
    } else {
      refuse(client, std::move(refusal));
    }
    return true;
  }
  if (message.kind == MessageKind::write) return write(client, message);
  if (message.kind != MessageKind::leave) return false;
  auto& standing = standing_[*client.rank];
  if (standing == Standing::joined) {
    standing = Standing::left;
    ++gone_;
  }
  Message farewell;
  farewell.kind = MessageKind::farewell;
  client.outbox.push(shared(encode(farewell)));
  return true;
}

void StoreState::disconnected(Client& client) {
  if (!client.rank) return;
  client_of_[*client.rank] = nullptr;
  mark_lost(*client.rank);
}

void StoreState::declare_lost(Rank rank) {
  if (rank >= standing_.size()) return;
  Client* client = client_of_[rank];
  mark_lost(rank);
  if (client != nullptr && standing_[rank] == Standing::lost) {
    refuse(*client, "rank " + number(rank) + " was declared lost");
  }
}

std::optional<Bytes> StoreState::get(std::string_view key) const {
  const auto found = values_.find(key);
  if (found == values_.end()) return std::nullopt;
  return found->second.value;
}

std::map<std::string, Bytes> StoreState::with_prefix(std::string_view prefix) const {
  std::map<std::string, Bytes> out;
  for (auto it = values_.lower_bound(prefix); it != values_.end(); ++it) {
    if (!it->first.starts_with(prefix)) break;
    out.emplace(it->first, it->second.value);
  }
  return out;
}

bool StoreState::lost(Rank rank) const noexcept {
  return rank < standing_.size() && standing_[rank] == Standing::lost;
}

std::string StoreState::refusal_of(const Message& hello) const {
  if (hello.magic != kMagic) return "the client does not speak this protocol";
  if (hello.version != kVersion) {
    return "the client speaks version " + number(hello.version) + " of the protocol, the store " +
           number(kVersion) + "; use the same release everywhere";
  }
  if (hello.world != standing_.size()) {
    return "rank " + number(hello.rank) + " says the job has " + number(hello.world) +
           " ranks, the store was started for " + number(standing_.size());
  }
  const std::string name = "rank " + number(hello.rank);
  if (hello.rank >= standing_.size()) {
    return name + " is out of range: ranks are 0 to " + number(standing_.size() - 1);
  }
  switch (standing_[hello.rank]) {
    case Standing::absent:
      return {};
    case Standing::joined:
      return name + " is taken: another process has joined with it";
    case Standing::left:
      return name + " has already left this job";
    case Standing::lost:
      return name + " was lost earlier and cannot come back to this job";
  }
  return {};
}

void StoreState::welcome(Client& client, Rank rank) {
  client.rank = rank;
  client_of_[rank] = &client;
  standing_[rank] = Standing::joined;

  using Item = decltype(values_)::value_type;
  std::vector<const Item*> copied;
  for (const auto& item : values_) {
    if (!is_result_key(item.first)) copied.push_back(&item);
  }
  std::sort(copied.begin(), copied.end(),
            [](const Item* a, const Item* b) { return a->second.order < b->second.order; });
  for (const Item* item : copied) {
    client.outbox.push(shared(encode_value(item->first, item->second.value)));
  }
  Message message;
  message.kind = MessageKind::lost;
  for (message.rank = 0; message.rank < standing_.size(); ++message.rank) {
    if (lost(message.rank)) client.outbox.push(shared(encode(message)));
  }
  message.kind = MessageKind::welcome;
  client.outbox.push(shared(encode(message)));
}

void StoreState::refuse(Client& client, std::string sentence) {
  Message message;
  message.kind = MessageKind::refusal;
  message.text = std::move(sentence);
  client.outbox.push(shared(encode(message)));
  client.closing = true;
}

bool StoreState::write(Client& client, Message& message) {
  const auto found = values_.find(message.key);
  if (found != values_.end() && message.only_if_absent) return true;
  const bool result = is_result_key(message.key);
  std::uint64_t& held = result ? result_bytes_ : copied_bytes_;
  const std::uint64_t before =
      found == values_.end() ? 0 : found->first.size() + found->second.value.size();
  const std::uint64_t after = message.key.size() + message.value.size();
  if (held - before + after > (result ? kResultBytesMax : kCopiedBytesMax)) {
    refuse(client, "the store is full: key '" + message.key + "' does not fit");
    return true;
  }
  held = held - before + after;
  if (!result) broadcast(encode_value(message.key, message.value));
  Entry& entry = values_[std::move(message.key)];
  entry.value = std::move(message.value);
  entry.order = ++writes_;
  return true;
}

void StoreState::broadcast(Bytes message) {
  const auto bytes = shared(std::move(message));
  for (Client* client : client_of_) {
    if (client == nullptr || client->closing) continue;
    client->outbox.push(bytes);
    if (client->outbox.bytes > kOutboxMax) {
      client->outbox = {};
      client->closing = true;
    }
  }
}

void StoreState::mark_lost(Rank rank) {
  auto& standing = standing_[rank];
  if (standing == Standing::left || standing == Standing::lost) return;
  standing = Standing::lost;
  ++gone_;
  Message message;
  message.kind = MessageKind::lost;
  message.rank = rank;
  broadcast(encode(message));
}

}  // namespace selmcast::store
