#include "coordinator/state/books/step_book.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <utility>

#include "base/hash.h"

namespace longhaul::coordinator {
namespace {

// Not by value: zeros have a sign.
bool SameBits(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

uint64_t Hash(std::span<const uint64_t> numbers) {
  return std::max<uint64_t>(Checksum64(std::as_bytes(numbers)), 1);
}

RepeatedStep Compare(const v1::StepRecord& before, const v1::StepRecord& now) {
  RepeatedStep repeated{.before = before,
                        .promised = now.numerics() != 0 && now.numerics() == before.numerics(),
                        .same_loss = SameBits(before.loss(), now.loss()),
                        .same_norm = SameBits(before.gradient_norm(), now.gradient_norm())};
  // Norms of parts are not comparable where the step was split otherwise.
  if (before.squared_norms_size() != now.squared_norms_size()) return repeated;
  for (int i = 0; i < now.squared_norms_size(); ++i) {
    if (SameBits(before.squared_norms(i), now.squared_norms(i))) continue;
    repeated.other_parts.push_back(static_cast<size_t>(i));
  }
  return repeated;
}

}  // namespace

void StepBook::Load(std::span<const v1::StepRecord> rows) {
  for (const v1::StepRecord& row : rows) rows_[row.step()] = row;
}

uint64_t StepBook::NumericsOf(const v1::StepRecord& row,
                              std::span<const uint64_t> of_stages) const {
  if (of_stages.empty() || std::ranges::find(of_stages, 0U) != of_stages.end()) return 0;
  std::vector<uint64_t> chain;
  if (row.step() == 1) {
    chain.push_back(1);  // untrained parameters are the run file's
  } else if (const auto last = rows_.find(row.step() - 1);
             last != rows_.end() && last->second.numerics() != 0) {
    chain.push_back(last->second.numerics());
  } else {
    chain = {row.epoch(), row.step()};  // nobody knows what this epoch began with
  }
  chain.insert(chain.end(), of_stages.begin(), of_stages.end());
  return Hash(chain);
}

std::optional<RepeatedStep> StepBook::File(v1::StepRecord* row,
                                           std::span<const uint64_t> of_stages) {
  row->set_numerics(NumericsOf(*row, of_stages));
  const auto before = rows_.find(row->step());
  std::optional<RepeatedStep> repeated;
  // A coordinator that was restarted is told again what the same epoch has finished.
  if (before != rows_.end() && before->second.epoch() != row->epoch()) {
    repeated = Compare(before->second, *row);
    Count(*repeated, *row);
  }
  const auto filed = rows_.insert_or_assign(row->step(), *row).first;
  // Not those right before the present step, which the next one's numerics are made of.
  if (rows_.size() > kKeptSteps) {
    rows_.erase(std::next(filed) == rows_.end() ? rows_.begin() : std::prev(rows_.end()));
  }
  return repeated;
}

void StepBook::Count(const RepeatedStep& repeated, const v1::StepRecord& row) {
  if (!repeated_ || repeated_->epoch != row.epoch()) {
    repeated_ = RepeatedSteps{.epoch = row.epoch(), .first = row.step()};
  }
  repeated_->last = row.step();
  repeated_->in_order &= row.numerics() != 0 && repeated.before.numerics() != 0;
  if (repeated.same()) return;
  if (std::exchange(repeated_->same, false)) repeated_->differs_at = row.step();
  repeated_->loss_difference =
      std::max(repeated_->loss_difference, std::abs(row.loss() - repeated.before.loss()));
  repeated_->norm_difference = std::max(
      repeated_->norm_difference, std::abs(row.gradient_norm() - repeated.before.gradient_norm()));
}

std::optional<RepeatedSteps> StepBook::TakeRepeated() {
  if (!repeated_ || rows_.rbegin()->first > repeated_->last) return std::nullopt;
  return std::exchange(repeated_, std::nullopt);
}

const v1::StepRecord* StepBook::Find(uint64_t step) const {
  const auto found = rows_.find(step);
  return found == rows_.end() ? nullptr : &found->second;
}

void StepBook::ForgetBefore(uint64_t step) {
  rows_.erase(rows_.begin(), rows_.lower_bound(step));
}

}  // namespace longhaul::coordinator
