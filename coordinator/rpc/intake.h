// What may come in from workers and users: sizes, counts and texts, checked before the state sees
// them. docs/design/limits.md lists them. Pure functions; errors are kInvalidArgument and say what
// was expected and what came, without repeating it.
#ifndef LONGHAUL_COORDINATOR_RPC_INTAKE_H_
#define LONGHAUL_COORDINATOR_RPC_INTAKE_H_

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "longhaul/v1/control.pb.h"
#include "longhaul/v1/worker.pb.h"

namespace longhaul::coordinator {

// A message of a worker, encoded.
inline constexpr size_t kMaxReportBytes = 64 << 10;
inline constexpr int kMaxTraceSteps = 64;  // of its trace
// Names, versions, ids, addresses: each of a hello's texts.
inline constexpr size_t kMaxHelloTextBytes = 256;
inline constexpr int kMaxDevices = 64;
inline constexpr int kMaxEndpoints = 16;      // data transports
inline constexpr int kMaxDataAddresses = 16;  // of each
// Texts for people: of a log line and of an error. Longer ones are cut.
inline constexpr size_t kMaxLineBytes = 4 << 10;
// Messages of one worker in a second, and how many more at once (it sends what it kept while the
// coordinator was away).
inline constexpr double kReportsPerSecond = 1'000;
inline constexpr double kReportBurst = 2'000;

inline constexpr size_t kMaxRunFileBytes = 1 << 20;
inline constexpr size_t kMaxNameBytes = 4 << 10;  // of files and of runs in requests
inline constexpr int kMaxOverrides = 1'000;
inline constexpr int kMaxDataFiles = 10'000;
// Asked for in one MissingBlobs.
inline constexpr int kMaxBlobsAsked = 10'000;
// What a user may assume of the network.
inline constexpr uint64_t kMaxAssumedBitsPerSecond = 1'000'000'000'000'000;
inline constexpr double kMaxAssumedDelaySeconds = 3600;
// Streams that follow a run, events or logs, all callers together.
inline constexpr size_t kMaxFollowers = 256;

// Also makes printable what is shown and not compared: version, host, devices' names.
Status AdmitHello(v1::Hello* hello);
// Makes texts for people printable and cuts them.
Status AdmitReport(v1::WorkerMessage* message);
Status AdmitSubmit(const v1::SubmitRequest& request);

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_RPC_INTAKE_H_
