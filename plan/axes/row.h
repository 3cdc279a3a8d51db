// The table of an axis: a value is one row. Parsing, printing, help and the rules between axes are
// loops over rows.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/result.h"
#include "plan/axes/traits.h"
#include "plan/axes/word.h"

namespace selmcast {

/// One value of the axis whose parsed words are of type `V`, a plain struct with `V::kind`.
template <class V>
struct Row {
  /// The value with its arguments as help shows it, e.g. "ssp:s[,eta]". Without a colon it takes
  /// none.
  std::string_view form;
  /// One line for `selmcast policies`; empty: the value belongs to a later version.
  std::string_view meaning{};
  decltype(V::kind) kind{};
  bool is_default = false;
  /// Words as a user may write them, between blanks: one for every different set of traits.
  std::string_view examples{};
  /// What the word's arguments say; null: the value is its kind.
  Result<V> (*parse)(const Word&) = nullptr;
  /// The arguments with their colon; null: there are none.
  std::string (*print)(const V&) = nullptr;
  Traits traits{};
  /// What the arguments add to the traits.
  Traits (*more)(const V&) = nullptr;
  /// Why it needs select=all, if it does; completes a sentence about it.
  std::string_view because{};

  std::string_view name() const noexcept { return form.substr(0, form.find_first_of(":[")); }
  bool later() const noexcept { return meaning.empty(); }
  bool takes_arguments() const noexcept { return form.find(':') != std::string_view::npos; }
};

/// The name of an axis and its values.
template <class V>
struct AxisTable {
  std::string_view name;
  std::span<const Row<V>> rows;
};

/// What may follow `axis=` in this version, e.g. "all, selmcast:p[,k], random:p".
template <class V>
std::string allowed_values(const AxisTable<V>& axis) {
  std::string out;
  for (const auto& row : axis.rows) {
    if (row.later()) continue;
    if (!out.empty()) out += ", ";
    out += row.form;
  }
  return out;
}

/// The row of a word, or why there is none (bad_input).
template <class V>
Result<const Row<V>*> find_row(const AxisTable<V>& axis, const Word& word) {
  const std::string what(axis.name);
  const std::string name(word.name());
  for (const auto& row : axis.rows) {
    if (row.name() != word.name()) continue;
    if (row.later()) {
      return bad_input("policy: " + what + "=" + name +
                       " belongs to a later version; this one has " + what + "=" +
                       allowed_values(axis));
    }
    if (word.argument() && !row.takes_arguments()) {
      return bad_input("policy: " + what + "=" + name + " takes no argument, but has " +
                       quoted(word.text.substr(name.size())));
    }
    return &row;
  }
  return bad_input("policy: unknown value " + quoted(word.text) + " of " + what + "; allowed are " +
                   allowed_values(axis));
}

/// Errors (bad_input) name the word and what is allowed.
template <class V>
Result<V> parse_word(const AxisTable<V>& axis, std::string_view text) {
  const Word word{text};
  const auto row = find_row(axis, word);
  if (!row) return row.error();
  if ((*row)->parse != nullptr) return (*row)->parse(word);
  V value;
  value.kind = (*row)->kind;
  return value;
}

template <class V>
const Row<V>& row_of(const AxisTable<V>& axis, const V& value) {
  const auto row = std::find_if(axis.rows.begin(), axis.rows.end(), [&](const Row<V>& each) {
    return !each.later() && each.kind == value.kind;
  });
  SELMCAST_CHECK(row != axis.rows.end(), "every kind has a row");
  return *row;
}

/// The word of a value; parse_word() of it gives the same value.
template <class V>
std::string print_word(const AxisTable<V>& axis, const V& value) {
  const auto& row = row_of(axis, value);
  return std::string(row.name()) + (row.print != nullptr ? row.print(value) : "");
}

template <class V>
Traits traits_of(const AxisTable<V>& axis, const V& value) {
  const auto& row = row_of(axis, value);
  return row.more != nullptr ? row.traits | row.more(value) : row.traits;
}

}  // namespace selmcast
