#include "plan/select/patch_matching.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "plan/select/slot_kernels.h"

namespace selmcast {
namespace {

constexpr std::uint32_t kWordBits = 64;

constexpr std::uint32_t words_for(std::uint32_t bits) {
  return bits / kWordBits + 1;
}

}  // namespace

PatchMatching::Ends::Ends(std::uint32_t capacity)
    : bits_(words_for(capacity + 1)),
      summary_(words_for(words_for(capacity + 1))),
      head_(capacity + 1, kNone) {}

void PatchMatching::Ends::clear(std::uint32_t size) {
  size_ = size;
  std::fill_n(bits_.begin(), words_for(size), 0U);
  std::fill_n(summary_.begin(), words_for(words_for(size)), 0U);
  std::fill_n(head_.begin(), size + 1, kNone);
}

void PatchMatching::Ends::add(std::uint32_t end, std::uint32_t receiver,
                              std::vector<std::uint32_t>& next) {
  next[receiver] = head_[end];
  head_[end] = receiver;
  const auto word = end / kWordBits;
  bits_[word] |= std::uint64_t{1} << (end % kWordBits);
  summary_[word / kWordBits] |= std::uint64_t{1} << (word % kWordBits);
}

std::uint32_t PatchMatching::Ends::next_set(std::uint32_t from) const noexcept {
  auto word = from / kWordBits;
  if (const auto here = bits_[word] >> (from % kWordBits); here != 0) {
    return from + static_cast<std::uint32_t>(std::countr_zero(here));
  }
  ++word;
  auto group = word / kWordBits;
  const auto groups = words_for(words_for(size_));
  if (group >= groups) return kNone;
  auto open = summary_[group] >> (word % kWordBits) << (word % kWordBits);
  while (open == 0) {
    if (++group >= groups) return kNone;
    open = summary_[group];
  }
  word = group * kWordBits + static_cast<std::uint32_t>(std::countr_zero(open));
  return word * kWordBits + static_cast<std::uint32_t>(std::countr_zero(bits_[word]));
}

std::uint32_t PatchMatching::Ends::take(std::uint32_t position, std::vector<std::uint32_t>& next) {
  const auto end = next_set(position + 1);
  if (end == kNone) return kNone;
  const auto receiver = head_[end];
  head_[end] = next[receiver];
  if (head_[end] != kNone) return receiver;
  const auto word = end / kWordBits;
  bits_[word] &= ~(std::uint64_t{1} << (end % kWordBits));
  if (bits_[word] == 0) summary_[word / kWordBits] &= ~(std::uint64_t{1} << (word % kWordBits));
  return receiver;
}

PatchMatching::PatchMatching(std::uint32_t capacity)
    : receiver_of_(capacity),
      sender_of_(capacity),
      senders_(capacity),
      position_of_(capacity + 1),
      arcs_(capacity),
      starts_(capacity + 1),
      next_start_(capacity),
      next_end_(capacity),
      matched_(capacity),
      place_of_(capacity),
      reached_by_(capacity),
      queue_(capacity),
      unseen_(capacity + 1),
      dead_(capacity + 1),
      ends_(capacity) {}

void PatchMatching::solve(const Members& members) {
  ring_ = members.ring;
  self_count_ = static_cast<std::uint32_t>(members.row.size());
  const auto z = self_count_, half = z / 2;
  turned_ = z >= 2 && members.all_may_send &&
            slot_kernels::all_outside(members.row.data(), members.first_row.data(),
                                      members.slots.data(), z, half, ring_);
  if (turned_) return;
  order_senders(members);
  find_arcs(members);
  match_by_ends();

  auto open = senders_count_;
  for (std::uint32_t at = 0; at < senders_count_; ++at) open -= matched_[at] != kNone ? 1 : 0;
  std::iota(dead_.begin(), dead_.begin() + senders_count_ + 1, 0U);
  for (std::uint32_t g = 0; g < z && open > 0; ++g) {
    if (place_of_[g] == kNone && arcs_[g].count > 0 && augment(g)) --open;
  }
  std::fill_n(receiver_of_.begin(), z, kNone);
  for (std::uint32_t g = 0; g < z; ++g) {
    sender_of_[g] = place_of_[g] == kNone ? kNone : senders_[place_of_[g]];
    if (sender_of_[g] != kNone) receiver_of_[sender_of_[g]] = g;
  }
}

void PatchMatching::order_senders(const Members& members) {
  const auto z = self_count_;
  const auto lowest = static_cast<std::uint32_t>(
      std::min_element(members.row.begin(), members.row.end()) - members.row.begin());
  senders_count_ = 0;
  for (std::uint32_t turn = 0; turn < z; ++turn) {
    const auto q = lowest + turn < z ? lowest + turn : lowest + turn - z;
    if (members.may_send[q] != 0) senders_[senders_count_++] = q;
  }
  std::uint32_t row = 0;
  for (std::uint32_t at = 0; at < senders_count_; ++at) {
    while (row <= members.row[senders_[at]]) position_of_[row++] = at;
  }
  while (row <= ring_) position_of_[row++] = senders_count_;
}

void PatchMatching::find_arcs(const Members& members) {
  const auto m = senders_count_;
  for (std::uint32_t g = 0; g < self_count_; ++g) {
    // Accepted are the rows from the end of its interval round to its beginning.
    auto from = members.first_row[g] + members.slots[g];
    if (from >= ring_) from -= ring_;
    const auto to = members.first_row[g];
    const auto first = position_of_[from], last = position_of_[to];
    const auto count = from <= to ? last - first : last + m - first;
    arcs_[g] = {first == m ? 0 : first, count};
  }
}

void PatchMatching::match(std::uint32_t position, std::uint32_t receiver) noexcept {
  matched_[position] = receiver;
  place_of_[receiver] = position;
}

void PatchMatching::match_by_ends() {
  const auto m = senders_count_;
  std::fill_n(matched_.begin(), m, kNone);
  std::fill_n(place_of_.begin(), self_count_, kNone);
  std::fill_n(starts_.begin(), m + 1, kNone);
  ends_.clear(m);
  for (std::uint32_t g = self_count_; g-- > 0;) {
    const auto& arc = arcs_[g];
    if (arc.count == 0) continue;
    next_start_[g] = starts_[arc.first];
    starts_[arc.first] = g;
    // The part behind the cut is open from the beginning.
    if (arc.first + arc.count > m) ends_.add(arc.first + arc.count - m, g, next_end_);
  }
  for (std::uint32_t position = 0; position < m; ++position) {
    for (auto g = starts_[position]; g != kNone; g = next_start_[g]) {
      const auto& arc = arcs_[g];
      if (place_of_[g] == kNone) ends_.add(std::min(arc.first + arc.count, m), g, next_end_);
    }
    const auto g = ends_.take(position, next_end_);
    if (g != kNone) match(position, g);
  }
}

std::uint32_t PatchMatching::next_unseen(std::uint32_t position) noexcept {
  while (unseen_[position] != position) {
    unseen_[position] = unseen_[unseen_[position]];
    position = unseen_[position];
  }
  return position;
}

bool PatchMatching::augment(std::uint32_t receiver) {
  std::copy_n(dead_.begin(), senders_count_ + 1, unseen_.begin());
  std::uint32_t head = 0, tail = 0;
  queue_[tail++] = receiver;
  const auto reach = [&](std::uint32_t g, std::uint32_t begin, std::uint32_t end) {
    for (auto at = next_unseen(begin); at < end; at = next_unseen(at)) {
      unseen_[at] = at + 1;
      reached_by_[at] = g;
      if (matched_[at] == kNone) return at;
      queue_[tail++] = matched_[at];
    }
    return kNone;
  };
  while (head < tail) {
    const auto g = queue_[head++];
    const auto end = arcs_[g].first + arcs_[g].count;
    auto at = reach(g, arcs_[g].first, std::min(end, senders_count_));
    if (at == kNone && end > senders_count_) at = reach(g, 0, end - senders_count_);
    if (at == kNone) continue;
    while (at != kNone) {
      const auto by = reached_by_[at];
      const auto before = place_of_[by];
      match(at, by);
      at = before;
    }
    return true;
  }
  std::swap(dead_, unseen_);
  return false;
}

}  // namespace selmcast
