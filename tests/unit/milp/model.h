// Integer programs over "who sends to whom", solved by GLPK: an answer that shares no code with the
// library.
#pragma once

#include <glpk.h>

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <vector>

#include "plan/select/selection.h"

namespace selmcast::milp {

/// Binary x[i][j] for i != j; the objective is to have as many of them as possible.
class PairModel {
 public:
  explicit PairModel(std::uint32_t n) : n_(n), model_(glp_create_prob()) {
    glp_term_out(GLP_OFF);
    glp_set_obj_dir(model_, GLP_MAX);
    glp_add_cols(model_, static_cast<int>(n * n));
    for (std::uint32_t i = 0; i < n; ++i) {
      for (std::uint32_t j = 0; j < n; ++j) {
        glp_set_col_kind(model_, x(i, j), GLP_BV);
        glp_set_obj_coef(model_, x(i, j), 1.0);
        if (i == j) fix(x(i, j), 0);
      }
    }
  }
  PairModel(const PairModel&) = delete;
  PairModel& operator=(const PairModel&) = delete;
  ~PairModel() { glp_delete_prob(model_); }

  int x(std::uint32_t sender, std::uint32_t receiver) const {
    return static_cast<int>(sender * n_ + receiver) + 1;
  }
  void fix(int column, int value) { glp_set_col_bnds(model_, column, GLP_FX, value, value); }
  /// low <= sum of the columns <= high. Impossible bounds are remembered, because GLPK refuses
  /// them.
  void bound(const std::vector<int>& columns, int low, int high) {
    if (low > high) impossible_ = true;
    if (low > high) return;
    const int row = glp_add_rows(model_, 1);
    glp_set_row_bnds(model_, row, low == high ? GLP_FX : GLP_DB, low, high);
    std::vector<int> index{0};
    std::vector<double> value{0.0};
    for (const int column : columns) {
      index.push_back(column);
      value.push_back(1.0);
    }
    glp_set_mat_row(model_, row, static_cast<int>(columns.size()), index.data(), value.data());
  }
  std::vector<int> row_of(std::uint32_t sender) const {
    std::vector<int> out;
    for (std::uint32_t j = 0; j < n_; ++j) out.push_back(x(sender, j));
    return out;
  }
  std::vector<int> column_of(std::uint32_t receiver) const {
    std::vector<int> out;
    for (std::uint32_t i = 0; i < n_; ++i) out.push_back(x(i, receiver));
    return out;
  }

  /// The most pairs; nullopt when nothing satisfies the bounds. Throws when GLPK gives up.
  std::optional<std::uint64_t> most_pairs() {
    if (impossible_) return std::nullopt;
    glp_iocp options;
    glp_init_iocp(&options);
    options.msg_lev = GLP_MSG_OFF;
    options.presolve = GLP_ON;
    options.tm_lim = 60'000;  // Milliseconds.
    const int status = glp_intopt(model_, &options);
    if (status == GLP_ENOPFS || status == GLP_ENODFS) return std::nullopt;
    if (status != 0) throw std::runtime_error("GLPK gave up");
    const int found = glp_mip_status(model_);
    if (found == GLP_NOFEAS) return std::nullopt;
    if (found != GLP_OPT) throw std::runtime_error("GLPK has no proof");
    return static_cast<std::uint64_t>(glp_mip_obj_val(model_) + 0.5);
  }

 private:
  std::uint32_t n_;
  glp_prob* model_;
  bool impossible_ = false;
};

}  // namespace selmcast::milp
