// A store's message stream from hostile bytes, fed in pieces as a socket would.
//
// Whatever is accepted must encode to a message that decodes to the same value.
#include <cstdint>
#include <cstdlib>
#include <span>

#include "plan/view.h"
#include "store/protocol.h"
#include "sync/roster.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

void check_message(const selmcast::store::Message& message) {
  const auto bytes = selmcast::store::encode(message);
  const auto again = selmcast::store::decode(std::span(bytes).subspan(4));
  require(again && *again == message);
}

void fuzz_stream(std::span<const std::byte> input, std::size_t piece, std::size_t limit) {
  selmcast::store::MessageStream stream(limit);
  selmcast::store::Message message;
  while (!input.empty()) {
    const auto now = input.first(std::min(piece, input.size()));
    input = input.subspan(now.size());
    stream.feed(now);
    using State = selmcast::store::MessageStream::State;
    for (State state; (state = stream.next(message)) != State::need_more;) {
      if (state == State::malformed) return;
      check_message(message);
    }
  }
}

/// What ranks put into the store for each other.
void fuzz_values(std::span<const std::byte> input) {
  if (const auto view = selmcast::parse_view(input)) {
    require(*selmcast::parse_view(selmcast::serialize(*view)) == *view);
  }
  static_cast<void>(selmcast::parse_roster_entry(input));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const auto input = std::as_bytes(std::span(data, size)).subspan(2);
  const bool hello = (data[0] & 1U) != 0;
  fuzz_stream(input, data[1] + 1U,
              hello ? selmcast::store::kHelloBodyMax : selmcast::store::kBodyMax);
  fuzz_values(input);
  return 0;
}
