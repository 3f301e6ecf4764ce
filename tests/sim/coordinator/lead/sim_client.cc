#include "tests/sim/coordinator/lead/sim_client.h"

#include <utility>

namespace longhaul::coordinator::lead_sim {
namespace {

constexpr absl::Duration kLimit = absl::Seconds(10);  // of a call
constexpr uint64_t kApart = 1'000'000;                // values of different clients

}  // namespace

void SimClient::Start() {
  if (stopped_) return;
  Call(place_ * kApart + ++values_);
}

void SimClient::Call(uint64_t value) {
  open_ = true;
  const uint64_t call = ++calls_;
  const Place to = leader_;
  const auto answer = [this, value, call, to](Answer said) {
    world_->net.Send(
        to, place_, [this, value, call, said] { End(value, call, said); },
        /*exact=*/true);
  };
  world_->net.Send(
      place_, to,
      [this, to, ask = Ask{.value = value, .client = place_, .answer = answer}] { send_(to, ask); },
      /*exact=*/true);
  world_->timeline.After(kLimit, [this, value, call] { End(value, call, Answer::kUnknown); });
}

void SimClient::End(uint64_t value, uint64_t call, Answer answer) {
  // Also an answer that comes after its call was given up is an answer.
  if (answer == Answer::kStored) world_->checker.ToldStored(value);
  if (!open_ || call != calls_) return;
  open_ = false;
  if (answer == Answer::kRefused) world_->checker.ToldRefused(value);
  if (answer == Answer::kUnknown) world_->checker.Unknown(value);
  if (answer != Answer::kStored) leader_ = leader_ == kA ? kB : kA;
  const bool again = answer == Answer::kUnknown && world_->random.Chance(0.5);
  world_->timeline.After(world_->random.Between(absl::Milliseconds(20), absl::Seconds(1)),
                         [this, value, again] {
                           if (stopped_) return;
                           if (again) return Call(value);
                           Start();
                         });
}

}  // namespace longhaul::coordinator::lead_sim
