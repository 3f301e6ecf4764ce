// Limits on messages of workers and users (sizes, counts and texts), checked before the state gets
// them. Listed in docs/design/limits.md. Pure functions. Errors are kInvalidArgument; they name the
// limit and the size, without repeating the input.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "longhaul/v1/control.pb.h"
#include "longhaul/v1/worker.pb.h"

namespace longhaul::coordinator {

// An encoded message of a worker.
inline constexpr size_t kMaxReportBytes = 64 << 10;
inline constexpr int kMaxTraceSteps = 64;  // steps in a trace
// Each text of a hello: names, versions, ids, addresses.
inline constexpr size_t kMaxHelloTextBytes = 256;
inline constexpr int kMaxDevices = 64;
inline constexpr int kMaxEndpoints = 16;      // data transports
inline constexpr int kMaxDataAddresses = 16;  // addresses of each endpoint
// A log line or an error, for people. Longer ones are cut.
inline constexpr size_t kMaxLineBytes = 4 << 10;
// Messages of one worker a second, and the burst beyond that: after the coordinator was away, a
// worker sends the messages that it kept.
inline constexpr double kReportsPerSecond = 1'000;
inline constexpr double kReportBurst = 2'000;

inline constexpr size_t kMaxRunFileBytes = 1 << 20;
inline constexpr size_t kMaxNameBytes = 4 << 10;  // names of files and runs in requests
inline constexpr int kMaxOverrides = 1'000;
inline constexpr int kMaxDataFiles = 10'000;
// Maximum number of blobs in one MissingBlobs.
inline constexpr int kMaxBlobsAsked = 10'000;
// A user's assumptions about the network.
inline constexpr uint64_t kMaxAssumedBitsPerSecond = 1'000'000'000'000'000;
inline constexpr double kMaxAssumedDelaySeconds = 3600;
// Maximum number of streams, of all callers, that follow runs, events or logs.
inline constexpr size_t kMaxFollowers = 256;

// Also makes texts printable that are shown but not compared: version, host, devices' names.
Status AdmitHello(v1::Hello* hello);
// Also makes texts for people printable, and shortens them.
Status AdmitReport(v1::WorkerMessage* message);
Status AdmitSubmit(const v1::SubmitRequest& request);

}  // namespace longhaul::coordinator
