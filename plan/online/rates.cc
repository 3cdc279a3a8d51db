#include "plan/online/rates.h"

#include <algorithm>
#include <limits>

namespace selmcast {

namespace {

/// Card 2r sends for rank r, card 2r+1 receives for it.
template <class Visit>
void visit_cards(const PacedStream& stream, const Visit& visit) {
  visit(std::size_t{2} * stream.sender);
  for (const Rank to : stream.receivers) visit(std::size_t{2} * to + 1);
}

}  // namespace

void weighted_rates(std::span<const Kbps> tx, std::span<const Kbps> rx,
                    std::vector<PacedStream>& streams) {
  std::vector<double> room(2 * tx.size()), rising(2 * tx.size(), 0.0);
  for (std::size_t r = 0; r < tx.size(); ++r) {
    room[2 * r] = static_cast<double>(tx[r]);
    room[2 * r + 1] = static_cast<double>(rx[r]);
  }
  std::vector<PacedStream*> open;
  for (auto& stream : streams) {
    stream.rate = 0.0;
    if (!stream.receivers.empty()) open.push_back(&stream);
  }
  while (!open.empty()) {
    std::fill(rising.begin(), rising.end(), 0.0);
    for (const auto* stream : open) {
      visit_cards(*stream, [&](std::size_t card) { rising[card] += stream->weight; });
    }
    double level = std::numeric_limits<double>::infinity();
    std::size_t full = 0;
    for (std::size_t card = 0; card < room.size(); ++card) {
      if (rising[card] <= 0.0) continue;
      // `room` is what the stopped streams leave to all that rise, from zero.
      const double here = std::max(room[card], 0.0) / rising[card];
      if (here < level) {
        level = here;
        full = card;
      }
    }
    std::erase_if(open, [&](PacedStream* stream) {
      bool stops = false;
      visit_cards(*stream, [&](std::size_t card) { stops = stops || card == full; });
      if (!stops) return false;
      stream->rate = level * stream->weight;
      visit_cards(*stream, [&](std::size_t card) { room[card] -= stream->rate; });
      return true;
    });
  }
}

}  // namespace selmcast
