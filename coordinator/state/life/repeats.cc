// Steps that a run trains again after a loss. Everything that decides their numbers was stored with
// them (books/step_book.h): where that is the same, so must the numbers be. If they are not, a
// device computes wrongly, and the run fails however often it may recover.
#include <fmt/format.h>

#include <vector>

#include "coordinator/state/life/steps.h"
#include "coordinator/state/text.h"

namespace longhaul::coordinator {

namespace {

std::string Sentence(const RepeatedSteps& steps) {
  const bool one = steps.first == steps.last;
  std::string text =
      one ? fmt::format("step {} was repeated and gave", steps.first)
          : fmt::format("steps {} to {} were repeated and gave", steps.first, steps.last);
  if (steps.same) return text + fmt::format(" the same {}, bit for bit", one ? "loss" : "losses");
  return text +
         fmt::format(
             " other numbers from step {} on: losses differ by up to {:.3g}, gradient norms by up "
             "to {:.3g}; {}",
             steps.differs_at, steps.loss_difference, steps.norm_difference,
             steps.in_order ? "devices, threads, the split of layers or the number of "
                              "replicas are others than before"
                            : "some stages compute sums in any order, or codecs have begun anew");
}

}  // namespace

bool Steps::File(Run& run, v1::StepRecord* row, const Reports& reports) {
  if (run.record.spec.replay) return true;  // a replay computes nothing
  StepBook& book = of_[run].book;
  std::vector<uint64_t> of_stages;
  for (const auto& report : reports) of_stages.push_back(report->numerics());
  const auto& checkpoints = run.record.checkpoints;
  if (!checkpoints.empty()) book.ForgetBefore(checkpoints.front().step());
  const std::optional<RepeatedStep> repeated = book.File(row, of_stages);
  if (repeated && repeated->promised && !repeated->same()) {
    failures_.Fail(run, BrokenPromise(run, *row, *repeated));
    return false;
  }
  if (const std::optional<RepeatedSteps> steps = book.TakeRepeated()) {
    ledger_.Log(&run, "loss", Sentence(*steps));
  }
  return true;
}

std::string Steps::BrokenPromise(const Run& run, const v1::StepRecord& row,
                                 const RepeatedStep& repeated) const {
  std::vector<std::string> others;
  const auto compare = [&others](const std::string& what, double before, double now) {
    others.push_back(fmt::format("{} was {} and is {}", what, before, now));
  };
  if (!repeated.same_loss) compare("the loss", repeated.before.loss(), row.loss());
  if (!repeated.same_norm) {
    compare("the gradient norm", repeated.before.gradient_norm(), row.gradient_norm());
  }
  std::vector<std::string> suspects;
  for (const size_t place : repeated.other_parts)
    suspects.push_back(ledger_.Label(run.stages[place]));
  // Gradients go from the head to the embedding, so the stage nearest to the head began it. A loss
  // that differs came of a forward, before all gradients.
  std::string where = "in some stage";
  if (!suspects.empty() && (repeated.same_loss || run.stages.size() == 1)) {
    const int place = static_cast<int>(repeated.other_parts.back());
    where = "in " + suspects.back();
    compare("the part of " + suspects.back() + " in the squared norm",
            repeated.before.squared_norms(place), row.squared_norms(place));
  } else if (!suspects.empty()) {
    where = fmt::format(
        "in one of {}, whose parts of the gradient norm differ, in this step or one before",
        Join(suspects));
  }
  return fmt::format(
      "step {} was repeated and gave other numbers, where devices, threads and software promise "
      "the same bits: {}; a device or its memory computed wrongly, the first or the second time, "
      "{}; "
      "test it before it trains again",
      row.step(), fmt::join(others, ", "), where);
}

}  // namespace longhaul::coordinator
