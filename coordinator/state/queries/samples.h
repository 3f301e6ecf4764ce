// Texts that a run's pipeline continues between two steps: by the key samples.every, and for
// `longhaul generate RUN`. Asks the first stage, keeps the newest rounds in the run's record, and
// answers the user.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "coordinator/state/events.h"
#include "coordinator/state/ledger/ledger.h"
#include "coordinator/state/ledger/moves.h"

namespace longhaul::coordinator {

// Requests under way, of one run.
inline constexpr size_t kMostSampleRequests = 4;
// A request is given up if the run has not answered after this time. A step may take minutes.
inline constexpr absl::Duration kSampleLimit = absl::Minutes(15);

class Samples : public MoveListener {
 public:
  explicit Samples(Ledger& ledger) : ledger_(ledger) {}

  // The reply is sent when the first stage has answered. kNotFound: no such run.
  // kFailedPrecondition: the run does not train, or does not sample. kInvalidArgument: other
  // prompts or settings than limits.md allows. kResourceExhausted: kMostSampleRequests are under
  // way. kUnavailable: the first stage's worker is not connected. kAborted: the run was interrupted
  // or has ended. kDeadlineExceeded: no answer within kSampleLimit.
  void On(event::SamplesAsked& asked);
  // Sends a worker that has come back its unanswered requests again.
  void Repeat(const Worker& worker) const;
  // A report of a stage of the run's present epoch.
  void OnReport(Run& run, const StageRecord& stage, const v1::SampleReport& report);
  // Gives up requests that are late. Call this in every tick.
  void CheckTimers();
  MonoTime NextWake() const;

  void OnMove(Run& run, const Transition& row) override;
  void OnRemove(const RunId& id) override;

 private:
  struct Request {
    RequestId request;
    RunId run;
    Epoch epoch;
    WorkerId worker;  // of the first stage
    v1::TakeSamples wanted;
    MonoTime until;
  };

  Status Begin(const event::SamplesAsked& asked);
  void Send(const Worker& worker, const Request& request) const;
  void End(uint64_t id, StatusOr<v1::SampleReply> reply);
  // Ends all requests of a run.
  void EndAll(const RunId& run, const Status& why);

  Ledger& ledger_;
  std::map<uint64_t, Request> requests_;
  uint64_t next_ = 1;
};

}  // namespace longhaul::coordinator
