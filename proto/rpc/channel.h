// Settings of this project's gRPC channels and servers: credentials, keepalive, sizes.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include <cstddef>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "proto/identity/authority.h"
#include "proto/identity/credentials.h"

namespace longhaul {

// Largest message that a client accepts. A larger message ends the call with RESOURCE_EXHAUSTED.
inline constexpr size_t kMaxMessageBytes = 4 << 20;
// Largest trace of a stage in a worker's report. A trace has thousands of spans; other reports are
// much smaller.
inline constexpr size_t kMaxTraceBytes = 512 << 10;
// Largest message that a server accepts.
inline constexpr size_t kMaxRequestBytes = 2 << 20;
// Concurrent calls on one connection to a server; further calls wait.
inline constexpr int kMaxCallsPerConnection = 32;
// Bytes of a blob in one message (UploadChunk, BlobChunk).
inline constexpr size_t kChunkBytes = 1 << 20;
// Longest error text: enough for every error of a run file, within gRPC's limit on metadata.
inline constexpr size_t kMaxErrorBytes = 16 << 10;

// Returns credentials of a coordinator with this identity, for TLS 1.3 only. A caller need not
// present a certificate. If it does, the certificate must be valid and signed by the authority.
std::shared_ptr<grpc::ServerCredentials> TlsServer(const ServerIdentity& identity);
// Return credentials without encryption, for data links and --insecure.
std::shared_ptr<grpc::ServerCredentials> PlainServer();
std::shared_ptr<grpc::ChannelCredentials> PlainClient();

// Sends gRPC's own messages ("No address added", ...) to the log at level debug; important errors
// come back as a Status. Call it once, in main().
void RouteGrpcLog();

// Raises the limit of open files to the system's maximum, because every connection needs one. Call
// it once, in main().
void RaiseFileLimit();

// Time limit of one attempt to connect.
inline constexpr absl::Duration kConnectLimit = absl::Seconds(5);

// Makes a channel with its own connection (not shared in the process), without proxies. It
// reconnects with back-off (0.2 s to 5 s) as long as calls need it, and notices a vanished peer
// within 20 s. Never blocks. Without credentials there is no encryption. With credentials the
// channel uses TLS, and connects only to a coordinator of their authority, at whatever address. It
// presents the member's certificate if `credentials` have one.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                           absl::Duration connect_limit = kConnectLimit);
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                           const Credentials& credentials,
                                           absl::Duration connect_limit = kConnectLimit);

// Sets limits and keepalive of a server whose port is a GuardedPort (guarded_port.h).
void ConfigureServer(grpc::ServerBuilder* builder);

}  // namespace longhaul
