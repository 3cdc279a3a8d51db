#include "probes/links_json.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

namespace selmcast {
namespace {

using Json = nlohmann::ordered_json;

/// Bounds what a wrong or hostile path can make us read: far above any real links.json.
constexpr std::size_t kFileBytesMax = 64U << 20U;
constexpr std::size_t kRanksMax = 65'536;

/// A value for an error's text: short and on one line.
std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 40) text = text.substr(0, 37) + "...";
  return text;
}

Result<Kbps> rate_in(const Json& value, const std::string& where) {
  const auto refuse = [&] {
    return bad_input(where + " is " + shown(value) + ", allowed are integers from 0 to " +
                     std::to_string(kLinkKbpsMax));
  };
  // A negative integer is never unsigned for the parser; NaN and 1e999 do not even parse.
  if (!value.is_number_unsigned()) return refuse();
  const auto rate = value.get<std::uint64_t>();
  if (rate > kLinkKbpsMax) return refuse();
  return rate;
}

Result<std::vector<Kbps>> rates_in(const Json& document, const std::string& field,
                                   const std::string& name) {
  const auto at = document.find(field);
  if (at == document.end()) return bad_input(name + ": field " + field + " is missing");
  if (!at->is_array()) {
    return bad_input(name + ": " + field + " is " + shown(*at) +
                     ", it must be an array of integers");
  }
  if (at->empty() || at->size() > kRanksMax) {
    return bad_input(name + ": " + field + " has " + std::to_string(at->size()) +
                     " entries, allowed are 1 to " + std::to_string(kRanksMax));
  }
  std::vector<Kbps> rates;
  for (std::size_t i = 0; i < at->size(); ++i) {
    auto rate = rate_in((*at)[i], name + ": " + field + "[" + std::to_string(i) + "]");
    if (!rate) return std::move(rate).error();
    rates.push_back(*rate);
  }
  return rates;
}

Result<void> check_fields(const Json& document, const std::string& name) {
  if (!document.is_object()) {
    return bad_input(name + ": the document is " + shown(document) +
                     ", it must be an object with tx_kbps and rx_kbps");
  }
  for (const auto& [field, value] : document.items()) {
    if (field == "tx_kbps" || field == "rx_kbps" || field == "detail") continue;
    if (field != "schema") {
      return bad_input(name + ": unknown field " + shown(Json(field)) +
                       ", allowed are schema, tx_kbps, rx_kbps, detail");
    }
    if (value != 1)
      return bad_input(name + ": schema is " + shown(value) + ", this version reads 1");
  }
  return {};
}

Error os_error(const std::string& path, const char* what) {
  return bad_input(path + ": cannot " + what + ": " + std::strerror(errno));
}

/// Rejects a document in which a field appears twice, where a reader and a writer could disagree.
class NoDuplicates {
 public:
  bool operator()(int, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) keys_.emplace_back();
    if (event == Json::parse_event_t::object_end) keys_.pop_back();
    if (event == Json::parse_event_t::key) {
      const std::string key = parsed.get<std::string>();
      for (const std::string& seen : keys_.back()) {
        if (seen == key && duplicate.empty()) duplicate = key;
      }
      keys_.back().push_back(key);
    }
    return true;
  }
  std::string duplicate;

 private:
  std::vector<std::vector<std::string>> keys_;
};

}  // namespace

Result<std::vector<LinkEstimate>> parse_links(std::string_view text, const std::string& name,
                                              std::uint32_t world) {
  NoDuplicates keys;
  const Json document = Json::parse(text, std::ref(keys), false);
  if (document.is_discarded()) {
    return bad_input(name + ": not valid JSON (NaN and infinity are not JSON numbers)");
  }
  if (!keys.duplicate.empty()) {
    return bad_input(name + ": field " + shown(Json(keys.duplicate)) + " appears twice");
  }
  if (auto ok = check_fields(document, name); !ok) return ok.error();
  auto tx = rates_in(document, "tx_kbps", name);
  if (!tx) return std::move(tx).error();
  auto rx = rates_in(document, "rx_kbps", name);
  if (!rx) return std::move(rx).error();
  for (const auto& [field, size] : {std::pair{"tx_kbps", tx->size()}, {"rx_kbps", rx->size()}}) {
    const std::size_t wanted = world == 0 ? tx->size() : world;
    if (size != wanted) {
      return bad_input(name + ": " + field + " has " + std::to_string(size) +
                       " entries, it must have one per rank: " + std::to_string(wanted));
    }
  }
  std::vector<LinkEstimate> links(tx->size());
  for (std::size_t r = 0; r < links.size(); ++r) {
    links[r].rank = static_cast<Rank>(r);
    links[r].transmit = {.available_kbps = (*tx)[r], .low_kbps = (*tx)[r], .high_kbps = (*tx)[r]};
    links[r].receive = {.available_kbps = (*rx)[r], .low_kbps = (*rx)[r], .high_kbps = (*rx)[r]};
  }
  return links;
}

Result<std::vector<LinkEstimate>> read_links(const std::string& path, std::uint32_t world) {
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in) return os_error(path, "open");
  std::string text;
  std::vector<char> block(65'536);
  while (in.read(block.data(), static_cast<std::streamsize>(block.size())), in.gcount() > 0) {
    text.append(block.data(), static_cast<std::size_t>(in.gcount()));
    if (text.size() > kFileBytesMax) {
      return bad_input(path + ": larger than 64 MiB, this is no links.json");
    }
  }
  if (in.bad()) return os_error(path, "read");
  return parse_links(text, path, world);
}

std::string links_json(std::span<const LinkEstimate> links) {
  Json document;
  document["schema"] = 1;
  document["tx_kbps"] = document["rx_kbps"] = document["detail"] = Json::array();
  for (const LinkEstimate& link : links) {
    document["tx_kbps"].push_back(link.transmit.available_kbps);
    document["rx_kbps"].push_back(link.receive.available_kbps);
    const double latency_us = static_cast<double>(link.latency.count()) / 1000.0;
    document["detail"].push_back({{"rank", link.rank},
                                  {"tx_low_kbps", link.transmit.low_kbps},
                                  {"tx_high_kbps", link.transmit.high_kbps},
                                  {"tx_loss", link.transmit.loss},
                                  {"rx_low_kbps", link.receive.low_kbps},
                                  {"rx_high_kbps", link.receive.high_kbps},
                                  {"rx_loss", link.receive.loss},
                                  {"latency_us", latency_us},
                                  {"repeats", link.repeats}});
  }
  return document.dump(1) + "\n";
}

}  // namespace selmcast
