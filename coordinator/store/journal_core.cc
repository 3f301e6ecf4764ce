#include "coordinator/store/journal_core.h"

#include <span>
#include <utility>

namespace longhaul {

v1::History ToProto(const coordinator::History& history) {
  v1::History message;
  message.set_term(history.term);
  message.set_number(history.number);
  message.set_chain(history.chain);
  return message;
}

coordinator::History FromProto(const v1::History& history) {
  return {.term = history.term(), .number = history.number(), .chain = history.chain()};
}

}  // namespace longhaul

namespace longhaul::coordinator {
namespace {

uint64_t ChainOf(uint64_t before, const std::string& bytes) {
  return ChainAfter(before, std::as_bytes(std::span(bytes)));
}

}  // namespace

History HistoryOf(const v1::StoreChange& change) {
  return {.term = change.term(), .number = change.number(), .chain = change.chain()};
}

std::string StoredBytes(v1::StoreChange change) {
  change.clear_chain();
  return change.SerializeAsString();
}

StatusOr<NamedChange> NameChange(const Standing& standing, v1::StoreChange change, uint64_t term,
                                 int64_t unix_ms, bool begins_term) {
  const History& newest = standing.logged();
  if (term < newest.term) {
    return Aborted(
        "this coordinator leads term {}, and its store has changes of term {}: another one has "
        "led since",
        term, newest.term);
  }
  if (!standing.tail.empty() && !begins_term) {
    return FailedPrecondition(
        "change {} of the store is not committed yet, which the change that begins a term does; "
        "expected that one first",
        newest.number);
  }
  change.set_term(term);
  change.set_number(newest.number + 1);
  change.set_unix_ms(unix_ms);
  NamedChange named;
  named.bytes = StoredBytes(change);
  change.set_chain(ChainOf(newest.chain, named.bytes));
  named.change = std::move(change);
  return named;
}

Fit FitOf(const Standing& standing, const NamedChange& change) {
  const History history = change.history();
  if (history.number > standing.logged().number + 1) return Fit::kGap;
  History before = standing.applied;
  if (history == before && history.number > 0) return Fit::kKnown;
  for (const History& logged : standing.tail) {
    if (history == logged) return Fit::kKnown;
    if (history.number == logged.number) {
      // Within its term a leader sends one change of a number.
      const bool replaces =
          history.term > logged.term && history.chain == ChainOf(before.chain, change.bytes);
      return replaces ? Fit::kReplacesTail : Fit::kDiffers;
    }
    before = logged;
  }
  const bool follows = history.number == before.number + 1 && history.term >= before.term &&
                       history.chain == ChainOf(before.chain, change.bytes);
  return follows ? Fit::kNext : Fit::kDiffers;
}

std::optional<uint64_t> ResumeAfter(const Standing& follower,
                                    absl::FunctionRef<std::optional<History>(uint64_t number)> at) {
  std::vector<History> mine = {follower.applied};
  mine.insert(mine.end(), follower.tail.begin(), follower.tail.end());
  for (; !mine.empty(); mine.pop_back()) {
    if (mine.back().number > 0 && at(mine.back().number) == mine.back()) return mine.back().number;
  }
  return std::nullopt;
}

}  // namespace longhaul::coordinator
