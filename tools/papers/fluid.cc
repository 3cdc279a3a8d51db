#include "tools/papers/fluid.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace selmcast {
namespace {

/// Card 2r sends for rank r, card 2r+1 receives for it.
template <class Visit>
void for_each_card(const Stream& stream, const Visit& visit) {
  visit(std::size_t{2} * stream.sender);
  for (const auto j : stream.receivers) visit(std::size_t{2} * j + 1);
}

/// Earlier deadlines first. Callers that ask often hand the streams over in that order.
std::vector<Stream*> by_deadline(const std::vector<Stream*>& streams) {
  const auto earlier = [](const Stream* a, const Stream* b) { return a->deadline < b->deadline; };
  auto order = streams;
  if (!std::is_sorted(order.begin(), order.end(), earlier)) {
    std::stable_sort(order.begin(), order.end(), earlier);
  }
  return order;
}

std::vector<double> capacities(const Cards& cards) {
  std::vector<double> out;
  out.reserve(2 * cards.tx.size());
  for (std::size_t r = 0; r < cards.tx.size(); ++r) {
    out.push_back(cards.tx[r]);
    out.push_back(cards.rx[r]);
  }
  return out;
}

}  // namespace

void max_min_rates(const Cards& cards, std::vector<Stream*>& streams) {
  auto room = capacities(cards);
  std::vector<std::vector<Stream*>> users(room.size());
  std::vector<std::uint32_t> rising(room.size());
  std::size_t open = 0;
  for (auto* stream : streams) {
    stream->rate = stream->left > 0.0 ? -1.0 : 0.0;  // -1: still rising.
    if (stream->left <= 0.0) continue;
    ++open;
    for_each_card(*stream, [&](std::size_t card) {
      users[card].push_back(stream);
      ++rising[card];
    });
  }
  while (open > 0) {
    double level = kInfinite;
    std::size_t full = 0;
    for (std::size_t card = 0; card < room.size(); ++card) {
      if (rising[card] == 0) continue;
      // `room` is what the stopped streams leave to all that rise, from zero.
      const double share = std::max(room[card], 0.0) / rising[card];
      if (share < level) {
        level = share;
        full = card;
      }
    }
    for (auto* stream : users[full]) {
      if (stream->rate >= 0.0) continue;
      stream->rate = level;
      --open;
      for_each_card(*stream, [&](std::size_t card) {
        room[card] -= level;
        --rising[card];
      });
    }
  }
}

void deadline_rates(const Cards& cards, std::vector<Stream*>& streams) {
  auto room = capacities(cards);
  const auto order = by_deadline(streams);
  const auto give = [&room](Stream& stream, double wanted) {
    for_each_card(stream, [&](std::size_t card) { wanted = std::min(wanted, room[card]); });
    if (wanted <= 0.0) return;
    stream.rate += wanted;
    for_each_card(stream, [&](std::size_t card) { room[card] -= wanted; });
  };
  for (auto* stream : order) {
    stream->rate = 0.0;
    if (stream->left <= 0.0) continue;
    give(*stream, stream->deadline > 0.0 ? stream->left / stream->deadline : kInfinite);
  }
  for (auto* stream : order) {
    if (stream->left > 0.0) give(*stream, kInfinite);
  }
}

void replicated_rates(const Cards& cards, std::vector<Stream*>& streams) {
  auto room = cards.rx;
  const auto order = by_deadline(streams);
  for (auto* stream : order) {
    const auto j = stream->receivers.front();
    stream->rate = stream->left > 0.0 ? std::min(room[j], cards.tx[stream->sender]) : 0.0;
    room[j] -= stream->rate;
  }
}

double fair_completion_ms(const Cards& cards, std::vector<Stream> streams) {
  std::vector<Stream*> open;
  for (auto& stream : streams) {
    if (stream.left > 0.0) open.push_back(&stream);
  }
  double now = 0.0;
  while (!open.empty()) {
    max_min_rates(cards, open);
    double step = kInfinite;
    for (const auto* stream : open) {
      if (stream->rate > 0.0) step = std::min(step, stream->left / stream->rate);
    }
    SELMCAST_CHECK(step < kInfinite, "some stream has a rate");
    now += step;
    // A hair of slack ends streams together that differ by rounding only.
    std::erase_if(open, [step](Stream* stream) {
      stream->left -= stream->rate * step * (1.0 + 1e-12);
      return stream->left <= 0.0;
    });
  }
  return now;
}

}  // namespace selmcast
