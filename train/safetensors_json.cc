#include "train/safetensors_json.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

namespace selmcast {
namespace {

constexpr std::string_view kMetadata = "__metadata__";

/// Receives the parser's events. Every handler returns false to stop at the first fault, so that
/// nesting never grows beyond the three levels the format has.
class HeaderEvents final : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<RawTensor> tensors;
  std::string fault;

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("true or false"); }
  bool number_integer(number_integer_t) override { return unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    return unexpected("a fraction, or a number beyond 64 bits");
  }
  bool binary(binary_t&) override { return unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::list) return unexpected("a number");
    list().push_back(value);
    return true;
  }
  bool string(string_t& value) override {
    if (place_ == Place::metadata) return true;
    if (place_ != Place::tensor || field_ != "dtype") return unexpected("a string");
    tensors.back().dtype = value;
    return true;
  }
  bool start_object(std::size_t) override {
    if (place_ == Place::outside) {
      place_ = Place::header;
    } else if (place_ == Place::header) {
      place_ = in_metadata_ ? Place::metadata : Place::tensor;
    } else {
      return unexpected("an object");
    }
    return true;
  }
  bool key(string_t& name) override {
    if (place_ == Place::metadata) return true;
    if (place_ == Place::tensor) return start_field(name);
    in_metadata_ = name == kMetadata;
    if (in_metadata_) {
      if (std::exchange(metadata_seen_, true)) return fail("__metadata__ appears twice");
      return true;
    }
    tensors.emplace_back().name = name;
    return true;
  }
  bool end_object() override {
    if (place_ == Place::tensor) {
      const RawTensor& tensor = tensors.back();
      if (!tensor.has_dtype) return fail(where() + "dtype is missing");
      if (!tensor.has_shape) return fail(where() + "shape is missing");
      if (!tensor.has_offsets) return fail(where() + "data_offsets is missing");
    }
    place_ = place_ == Place::header ? Place::outside : Place::header;
    return true;
  }
  bool start_array(std::size_t) override {
    if (place_ != Place::tensor || field_ == "dtype") return unexpected("a list");
    place_ = Place::list;
    return true;
  }
  bool end_array() override {
    place_ = Place::tensor;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    return fail("the header is not valid JSON near its byte " + std::to_string(position));
  }

 private:
  enum class Place { outside, header, metadata, tensor, list };

  bool fail(std::string what) {
    fault = std::move(what);
    return false;
  }
  std::string where() const {
    if (in_metadata_) return "__metadata__: ";
    if (tensors.empty()) return "";
    return "tensor " + quoted_name(tensors.back().name) + ": ";
  }
  bool unexpected(const char* what) {
    if (place_ == Place::outside)
      return fail(std::string("the header is ") + what + ", not an object");
    const bool in_field = place_ == Place::tensor || place_ == Place::list;
    const char* wanted = place_ == Place::list       ? "an integer from 0"
                         : place_ == Place::metadata ? "a string"
                         : place_ == Place::header   ? "an object"
                         : field_ == "dtype"         ? "a string"
                                                     : "a list of integers";
    return fail(where() + (in_field ? field_ + ": " : "") + what + " where " + wanted +
                " is needed");
  }
  bool start_field(const std::string& name) {
    RawTensor& tensor = tensors.back();
    bool* seen = name == "dtype"          ? &tensor.has_dtype
                 : name == "shape"        ? &tensor.has_shape
                 : name == "data_offsets" ? &tensor.has_offsets
                                          : nullptr;
    if (seen == nullptr) {
      return fail(where() + "unknown field " + quoted_name(name) +
                  "; there are dtype, shape and data_offsets");
    }
    if (std::exchange(*seen, true)) return fail(where() + name + " appears twice");
    field_ = name;
    return true;
  }
  std::vector<std::uint64_t>& list() {
    return field_ == "shape" ? tensors.back().shape : tensors.back().offsets;
  }

  Place place_ = Place::outside;
  bool in_metadata_ = false;
  bool metadata_seen_ = false;
  std::string field_;
};

}  // namespace

std::string quoted_name(std::string_view name) {
  constexpr std::size_t kLongest = 60;
  std::string out = "\"";
  for (const char c : name.substr(0, kLongest)) out += c >= ' ' && c <= '~' ? c : '?';
  return out + (name.size() > kLongest ? "...\"" : "\"");
}

Result<std::vector<RawTensor>> parse_safetensors_json(std::string_view json) {
  if (!json.starts_with('{')) return bad_input("the header does not begin with {");
  HeaderEvents events;
  if (!nlohmann::json::sax_parse(json.begin(), json.end(), &events)) {
    return bad_input(events.fault);
  }
  return std::move(events.tensors);
}

}  // namespace selmcast
