#include "probes/gather.h"

namespace selmcast {

void Gather::start(std::string stem, std::vector<Rank> ranks) {
  stem_ = std::move(stem);
  ranks_ = std::move(ranks);
  values_.clear();
}

bool Gather::poll(const Rendezvous& rendezvous) {
  while (values_.size() < ranks_.size()) {
    auto value = rendezvous.try_get(key(ranks_[values_.size()]));
    if (!value) return false;
    values_.push_back(std::move(*value));
  }
  return true;
}

}  // namespace selmcast
