#include "deploy/sweep/runner.h"

#include <fmt/core.h>

#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/units.h"
#include "coordinator/cli/format.h"
#include "coordinator/cli/progress.h"
#include "deploy/cluster/requirements.h"
#include "deploy/sweep/measure.h"
#include "deploy/sweep/prediction.h"
#include "deploy/sweep/sweep_cluster.h"
#include "deploy/sweep/time_left.h"

namespace longhaul::cli {
namespace {

constexpr absl::Duration kLook = absl::Milliseconds(250);
// The cluster's workers are all connected and free when a run is submitted.
constexpr absl::Duration kQueuePatience = absl::Seconds(60);
// Longer than any step that anybody would wait for.
constexpr absl::Duration kStandstill = absl::Minutes(20);

double NetworkSecondsOf(const SweepPoint& point) {
  return NetworkSeconds(point.spec, point.rate_bits_per_second) *
         static_cast<double>(point.spec.train.steps);
}

LinkParameters LinksOf(const SweepPoint& point, const SweepSpec& sweep) {
  LinkParameters link;
  link.up_bits_per_second = link.down_bits_per_second = point.rate_bits_per_second;
  link.quality.delay = point.delay;
  if (point.delay > absl::ZeroDuration()) link.quality.jitter = sweep.jitter;
  link.quality.loss = sweep.loss;
  return link;
}

class Runner {
 public:
  Runner(Invocation& invocation, const SweepSpec& sweep, const SweepWorkers& workers,
         const std::string& out, ResultsStore& store)
      : invocation_(invocation),
        sweep_(sweep),
        store_(store),
        cluster_(invocation.terminal(), invocation.interrupt(), out, workers) {}

  Status Run(const std::vector<SweepJob>& jobs);

 private:
  // The point's result, done or failed. An error where the sweep cannot go on.
  StatusOr<PointResult> RunPoint(const SweepJob& job);
  // The same, but for what befalls this point alone.
  StatusOr<PointResult> Measure(const SweepJob& job, Client& client, std::string* run_id);
  StatusOr<v1::RunStatus> WaitForEnd(const SweepJob& job, Client& client, const std::string& run_id,
                                     StageShares& shares);
  StatusOr<std::vector<v1::StepRecord>> Steps(Client& client, const std::string& run_id) const;
  void Tell(const PointResult& result, const SweepPoint& point) const;
  std::string Where(const SweepPoint& point) const;
  Status CheckInterrupt() const;

  Invocation& invocation_;
  const SweepSpec& sweep_;
  ResultsStore& store_;
  SweepCluster cluster_;
  TimeLeft time_left_;
};

Status Runner::CheckInterrupt() const {
  if (!invocation_.interrupt().fired()) return absl::OkStatus();
  return absl::CancelledError(
      "interrupted; the same command goes on with the points that are left");
}

std::string Runner::Where(const SweepPoint& point) const {
  return fmt::format("point {} of {} ({})", point.index + 1, store_.results().points.size(),
                     Describe(point, sweep_));
}

Status Runner::Run(const std::vector<SweepJob>& jobs) {
  LH_RETURN_IF_ERROR(cluster_.Clear());  // of a sweep that was killed
  for (const SweepJob& job : jobs) time_left_.AddWaiting(NetworkSecondsOf(job.point));
  for (const SweepJob& job : jobs) {
    LH_RETURN_IF_ERROR(CheckInterrupt());
    const MonoTime begin = Now();
    time_left_.Begin(NetworkSecondsOf(job.point));
    LH_ASSIGN_OR_RETURN(PointResult result, RunPoint(job));
    time_left_.Ended(NetworkSecondsOf(job.point), absl::ToDoubleSeconds(Now() - begin));
    const bool failed = result.state == PointState::kRunFailed;
    Tell(result, job.point);
    LH_RETURN_IF_ERROR(store_.Record(std::move(result)));
    // Whatever it left behind, a dead worker or half a run, is not the next one's business.
    if (failed) LH_RETURN_IF_ERROR(cluster_.Clear());
  }
  return absl::OkStatus();
}

StatusOr<PointResult> Runner::RunPoint(const SweepJob& job) {
  const SweepPoint& point = job.point;
  StatusOr<Client*> client = cluster_.With(LinksOf(point, sweep_));
  if (absl::IsCancelled(client.status())) invocation_.interrupt().Fire();
  LH_RETURN_IF_ERROR(CheckInterrupt());
  LH_RETURN_IF_ERROR(Annotate(client.status(), "the sweep's cluster"));
  std::string run_id;
  StatusOr<PointResult> result = Measure(job, **client, &run_id);
  LH_RETURN_IF_ERROR(CheckInterrupt());
  if (result.ok()) return result;
  return FailedPoint(point, sweep_, std::string(Message(result.status())), run_id);
}

StatusOr<PointResult> Runner::Measure(const SweepJob& job, Client& client, std::string* run_id) {
  const Submission& submission = job.submission;
  LH_RETURN_IF_ERROR(UploadData(invocation_.terminal(), client, submission));
  // The links are measured for a plan of its own, so that they count this run's bytes alone.
  v1::SubmitRequest request = submission.request;
  request.add_overrides("links.measure=true");
  LH_RETURN_IF_ERROR(
      client.Get(&v1::ControlService::Stub::PlanRun, request, absl::Minutes(10)).status());
  *request.mutable_overrides()->rbegin() = "links.measure=false";
  LH_ASSIGN_OR_RETURN(const ClusterView before, cluster_.Observe());
  LH_ASSIGN_OR_RETURN(const v1::SubmitReply reply,
                      client.Get(&v1::ControlService::Stub::Submit, request, absl::Minutes(2)));
  *run_id = reply.run_id();
  StageShares shares(sweep_.warm_up);
  LH_ASSIGN_OR_RETURN(const v1::RunStatus run, WaitForEnd(job, client, *run_id, shares));
  LH_ASSIGN_OR_RETURN(const ClusterView after, cluster_.Observe());
  LH_ASSIGN_OR_RETURN(const std::vector<v1::StepRecord> steps, Steps(client, *run_id));
  return MeasuredPoint(job.point, sweep_, run, steps, shares, BytesBetween(before, after));
}

StatusOr<v1::RunStatus> Runner::WaitForEnd(const SweepJob& job, Client& client,
                                           const std::string& run_id, StageShares& shares) {
  Progress progress(invocation_.terminal(), Where(job.point));
  v1::RunRequest request;
  request.set_run(run_id);
  const MonoTime begin = Now();
  MonoTime changed = begin;
  uint64_t sequence = 0;
  while (true) {
    LH_ASSIGN_OR_RETURN(v1::RunStatus run, client.Get(&v1::ControlService::Stub::GetRun, request));
    shares.Add(run);
    if (run.state() == "done") return run;
    if (HasEnded(run)) {
      return absl::AbortedError(
          fmt::format("the run {}: {}", run.state(), PrintableLines(run.reason())));
    }
    const MonoTime now = Now();
    if (run.sequence() != sequence) changed = now;
    sequence = run.sequence();
    if (run.state() == "queued" && now - begin > kQueuePatience) {
      return absl::UnavailableError(fmt::format("it waited {} in vain for its workers: {}",
                                                longhaul::FormatDuration(kQueuePatience),
                                                PrintableLines(run.reason())));
    }
    if (now - changed > kStandstill) {
      return absl::DeadlineExceededError(fmt::format("nothing has changed for {} at step {}",
                                                     longhaul::FormatDuration(kStandstill),
                                                     StepText(run)));
    }
    const auto left = time_left_.Estimate(run.seconds_left() > 0 ? std::optional(run.seconds_left())
                                                                 : std::nullopt);
    progress.Say(fmt::format("{} step {}{}", run.state(), StepText(run),
                             left ? fmt::format(", {} left", SecondsText(*left)) : ""));
    if (invocation_.interrupt().WaitFor(kLook)) return absl::CancelledError("interrupted");
  }
}

StatusOr<std::vector<v1::StepRecord>> Runner::Steps(Client& client,
                                                    const std::string& run_id) const {
  v1::StepsRequest request;
  request.set_run(run_id);
  std::vector<v1::StepRecord> steps;
  const std::function<bool(const v1::StepRecord&)> keep = [&](const v1::StepRecord& step) {
    steps.push_back(step);
    return true;
  };
  LH_RETURN_IF_ERROR(client.Each(&v1::ControlService::Stub::ListSteps, request, keep));
  return steps;
}

void Runner::Tell(const PointResult& result, const SweepPoint& point) const {
  std::ostream& err = invocation_.terminal().err;
  if (result.state == PointState::kRunFailed) {
    err << fmt::format("{}: failed: {}", Where(point), Printable(result.reason)) << std::endl;
    return;
  }
  err << fmt::format("{}: {} a step, {} tokens/s; simulated {}, lower bound {}", Where(point),
                     SecondsText(result.step_seconds), GroupedText(result.TokensPerSecond()),
                     SecondsText(result.simulated_seconds), SecondsText(result.bound_seconds))
      << std::endl;
}

}  // namespace

Status RunPoints(Invocation& invocation, const SweepSpec& sweep, const SweepWorkers& workers,
                 const std::string& out, const std::vector<SweepJob>& jobs, ResultsStore& store) {
  // Even with nothing to run there may be a cluster to remove, unless this machine can have none.
  if (jobs.empty() && !CheckRequirements(ThisMachine()).ok()) return absl::OkStatus();
  return Runner(invocation, sweep, workers, out, store).Run(jobs);
}

}  // namespace longhaul::cli
