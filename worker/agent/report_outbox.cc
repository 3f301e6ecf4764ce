#include "worker/agent/report_outbox.h"

#include <iterator>
#include <utility>

namespace longhaul::worker {
namespace {

// Messages kept for a coordinator that is away: a day of steps at one a second, several stages'
// worth.
constexpr size_t kMaxWaiting = 100'000;
constexpr size_t kMaxWaitingLogs = 1'000;
// Reports that are said again in a new session: more than a connection and the coordinator's memory
// can lose.
constexpr size_t kMaxWritten = 4'096;

// What the coordinator must not miss of an epoch.
bool IsReport(const v1::WorkerMessage& message) {
  return message.has_step() || message.has_validation() || message.has_shard() ||
         message.has_finished() || message.has_error() || message.has_samples();
}

bool AreOfOneEpoch(const v1::WorkerMessage& a, const v1::WorkerMessage& b) {
  return a.run_id() == b.run_id() && a.epoch() == b.epoch() && a.stamp() == b.stamp();
}

}  // namespace

void ReportOutbox::Push(v1::WorkerMessage message) {
  const size_t limit = message.has_log() ? kMaxWaitingLogs : kMaxWaiting;
  if (waiting_.size() >= limit) return;
  waiting_.push_back(std::move(message));
}

void ReportOutbox::BeginSession() {
  waiting_.insert(waiting_.begin(), std::make_move_iterator(written_.begin()),
                  std::make_move_iterator(written_.end()));
  written_.clear();
}

void ReportOutbox::Written() {
  v1::WorkerMessage message = std::move(waiting_.front());
  waiting_.pop_front();
  if (!IsReport(message)) return;
  if (!written_.empty() && !AreOfOneEpoch(written_.front(), message)) written_.clear();
  written_.push_back(std::move(message));
  if (written_.size() > kMaxWritten) written_.pop_front();
}

}  // namespace longhaul::worker
