// Limits on messages of workers and users (sizes, counts and texts). They are checked before the
// state machine gets a message. docs/design/limits.md lists them. Pure functions. Errors are
// kInvalidArgument and name the limit and the size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "longhaul/v1/control.pb.h"
#include "longhaul/v1/worker.pb.h"

namespace longhaul::coordinator {

// Maximum size of an encoded message of a worker; traces have kMaxTraceBytes (proto/rpc/channel.h).
inline constexpr size_t kMaxReportBytes = 64 << 10;
inline constexpr int kMaxTraceSteps = 64;  // steps in a trace
// Maximum size of each text in a hello, a worker's first message: names, versions, ids, addresses.
inline constexpr size_t kMaxHelloTextBytes = 256;
inline constexpr int kMaxDevices = 64;
inline constexpr int kMaxEndpoints = 16;      // data transports
inline constexpr int kMaxDataAddresses = 16;  // addresses of each endpoint
// Maximum size of log lines and errors, which are for people. AdmitReport cuts longer ones.
inline constexpr size_t kMaxLineBytes = 4 << 10;
// Messages that one worker may send in a second on average, and at once in a burst. A burst comes
// after the coordinator was away: the worker then sends the messages that it kept meanwhile.
inline constexpr double kReportsPerSecond = 1'000;
inline constexpr double kReportBurst = 2'000;
// The same in bytes: a step's report has some hundred of them for each link.
inline constexpr double kReportBytesPerSecond = 1 << 20;
inline constexpr double kReportByteBurst = 8 << 20;

inline constexpr size_t kMaxRunFileBytes = 1 << 20;
inline constexpr size_t kMaxNameBytes = 4 << 10;  // names of files and runs in requests
inline constexpr size_t kMinRequestIdBytes = 16, kMaxRequestIdBytes = 64;
inline constexpr int kMaxOverrides = 1'000;
inline constexpr int kMaxDataFiles = 10'000;
// Maximum number of blobs in one MissingBlobs.
inline constexpr int kMaxBlobsAsked = 10'000;
// Limits of a user's assumptions about the network.
inline constexpr uint64_t kMaxAssumedBitsPerSecond = 1'000'000'000'000'000;
inline constexpr double kMaxAssumedDelaySeconds = 3600;

// Checks a hello. Also makes those texts printable that are shown but not compared, such as
// versions, hosts and names of devices.
Status AdmitHello(v1::Hello* hello);
// Checks a later message of a worker. Also makes texts for people printable, and shortens them.
Status AdmitReport(v1::WorkerMessage* message);
// Checks the id that a caller gives a call (coordinator/state/once.h). Empty: it gives none.
Status AdmitRequestId(std::string_view id);
// Checks a user's request to submit a run or to plan one.
Status AdmitSubmit(const v1::SubmitRequest& request);

}  // namespace longhaul::coordinator
