// Workers whose processes end for their own fault, and which of them runs do without for a while.
#include <fmt/format.h>

#include "base/units.h"
#include "coordinator/state/core.h"

namespace longhaul::coordinator {

bool Core::MayTake(const Worker& worker, const RunId* run) const {
  return worker.session && !worker.restarts &&
         (!worker.held || (run != nullptr && *worker.held == *run)) &&
         !health_.LeftOutUntil(worker.id, now_);
}

// Without the time that is left: a sentence that changes all the time is a new event every time.
std::string Core::LeftOutText(const WorkerId& id) const {
  if (!health_.LeftOutUntil(id, now_)) return "";
  const uint32_t losses = health_.Losses(id, now_);
  return losses > 1 ? fmt::format(" (left out after {} losses)", losses)
                    : " (left out for a while)";
}

void Core::NoteFault(const Run* run, const WorkerId& id, const Incarnation& incarnation,
                     HealthBook::Fault fault) {
  const Worker* worker = FindWorker(id);
  const auto verdict = health_.Lost(id, incarnation, fault, now_);
  if (!verdict) return;
  const std::string what = verdict->losses == 1
                               ? "lost its GPU"
                               : fmt::format("was lost {} times in {}", verdict->losses,
                                             longhaul::FormatDuration(verdict->within));
  const absl::Time until = absl::FromUnixMillis(unix_ms_) + verdict->pause;
  Log(run, "worker",
      fmt::format("worker {} {}; it is left out of runs for {}, until {}",
                  worker == nullptr ? id.value() : Label(*worker), what,
                  longhaul::FormatDuration(verdict->pause),
                  absl::FormatTime("%H:%M:%S UTC", until, absl::UTCTimeZone())));
}

void Core::OnRestart(Worker& worker, const v1::WorkerMessage& message) {
  worker.restarts = true;
  const bool device_lost = message.error().restarts_for() == v1::WORKER_FAULT_DEVICE_LOST;
  faults_.Add(device_lost ? FaultKind::kDeviceLost : FaultKind::kWorkerHung);
  NoteFault(FindRun(RunId(message.run_id())), worker.id, worker.incarnation,
            device_lost ? HealthBook::Fault::kDeviceLost : HealthBook::Fault::kDied);
}

}  // namespace longhaul::coordinator
