// Limits on what workers and users send (sizes, counts and texts), checked before the state sees
// it. Listed in docs/design/limits.md. Pure functions. Errors are kInvalidArgument and say what was
// expected and what came, without repeating it.
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
// worker sends what it kept.
inline constexpr double kReportsPerSecond = 1'000;
inline constexpr double kReportBurst = 2'000;

inline constexpr size_t kMaxRunFileBytes = 1 << 20;
inline constexpr size_t kMaxNameBytes = 4 << 10;  // names of files and runs in requests
inline constexpr int kMaxOverrides = 1'000;
inline constexpr int kMaxDataFiles = 10'000;
// Blobs asked for in one MissingBlobs.
inline constexpr int kMaxBlobsAsked = 10'000;
// Assumptions of a user about the network.
inline constexpr uint64_t kMaxAssumedBitsPerSecond = 1'000'000'000'000'000;
inline constexpr double kMaxAssumedDelaySeconds = 3600;
// Streams of all callers that follow a run, events or logs.
inline constexpr size_t kMaxFollowers = 256;

// Also makes texts printable that are shown but not compared: version, host, devices' names.
Status AdmitHello(v1::Hello* hello);
// Also makes texts for people printable, and cuts them.
Status AdmitReport(v1::WorkerMessage* message);
Status AdmitSubmit(const v1::SubmitRequest& request);

}  // namespace longhaul::coordinator
