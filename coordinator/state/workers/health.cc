#include "coordinator/state/workers/health.h"

#include <fmt/format.h>

#include "base/units.h"

namespace longhaul::coordinator {

bool Health::MayTake(const Worker& worker, const RunId* run) const {
  return worker.session && !worker.restarts && !worker.leaves_at &&
         (!worker.held || (run != nullptr && *worker.held == *run)) &&
         !book_.LeftOutUntil(worker.id, ledger_.now());
}

// Does not say the time that is left: each change of the sentence would be a new event.
std::string Health::LeftOutText(const WorkerId& id) const {
  const Worker* worker = ledger_.FindWorker(id);
  if (worker != nullptr && worker->leaves_at) return " (leaving)";
  if (!book_.LeftOutUntil(id, ledger_.now())) return "";
  if (book_.IsDistrusted(id)) return " (evicted)";
  const uint32_t losses = book_.Losses(id, ledger_.now());
  return losses > 1 ? fmt::format(" (left out after {} losses)", losses)
                    : " (left out for a while)";
}

void Health::NoteFault(const Run* run, const WorkerId& id, const Incarnation& incarnation,
                       HealthBook::Fault fault) {
  const Worker* worker = ledger_.FindWorker(id);
  const auto verdict = book_.Lost(id, incarnation, fault, ledger_.now());
  if (!verdict) return;
  const std::string what = verdict->losses == 1
                               ? "lost its GPU"
                               : fmt::format("was lost {} times in {}", verdict->losses,
                                             longhaul::FormatDuration(verdict->within));
  const absl::Time until = absl::FromUnixMillis(ledger_.unix_ms()) + verdict->pause;
  ledger_.Log(run, "worker", "worker {} {}; it is left out of runs for {}, until {}",
              worker == nullptr ? id.value() : ledger_.Label(*worker), what,
              longhaul::FormatDuration(verdict->pause),
              absl::FormatTime("%H:%M:%S UTC", until, absl::UTCTimeZone()));
}

void Health::Distrust(const Run& run, const WorkerId& id, const std::string& cause) {
  book_.Distrust(id);
  const Worker* worker = ledger_.FindWorker(id);
  ledger_.Log(&run, "verify",
              "worker {} is evicted, and no run takes it until the coordinator is restarted "
              "(`longhaul members revoke` keeps it out for good): {}",
              worker == nullptr ? id.value() : ledger_.Label(*worker), cause);
}

void Health::OnRestart(Worker& worker, const v1::WorkerMessage& message) {
  worker.restarts = true;
  const bool device_lost = message.error().restarts_for() == v1::WORKER_FAULT_DEVICE_LOST;
  ledger_.Count(device_lost ? FaultKind::kDeviceLost : FaultKind::kWorkerHung);
  NoteFault(ledger_.FindRun(RunId(message.run_id())), worker.id, worker.incarnation,
            device_lost ? HealthBook::Fault::kDeviceLost : HealthBook::Fault::kDied);
}

}  // namespace longhaul::coordinator
