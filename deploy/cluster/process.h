// Processes of a local cluster: external tools that run to their end, and daemons that outlive this
// program. Always by argument vector, never through a shell.
//
// Every daemon carries the variable LONGHAUL_CLUSTER_DAEMON=<cluster> in its environment, so that
// `cluster down` finds it even when the state file is lost.
//
// Not thread-safe with respect to fork: call from a program's main thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "base/status.h"
#include "deploy/cluster/state_file.h"

namespace longhaul {

using Command = std::vector<std::string>;

// The command line as a person would type it: arguments with special characters are quoted.
std::string ToString(const Command& command);

// Runs a tool, at most 30 s, and returns its standard output. kInternal, with the command and its
// standard error: it failed. kNotFound: no such program. kDeadlineExceeded.
StatusOr<std::string> RunTool(const Command& command);

// The path of a tool: searches PATH, then /usr/sbin, /sbin, /usr/local/sbin, then the portable
// bundle. Empty: not found.
std::string FindTool(std::string_view name);

// Starts a daemon of `cluster` in a session of its own; appends its output to `log_path`. The
// daemon is a child of this process until this process ends. kNotFound if the program does not
// exist; IsAlive shows a program that fails later.
StatusOr<ProcessIdentity> StartDaemon(const Command& command, std::string_view cluster,
                                      const std::string& log_path);

// Whether exactly this process is alive and not a zombie. Reaps a zombie child.
bool IsAlive(const ProcessIdentity& process);

// All live daemons of `cluster`, by the variable in their environment.
std::vector<ProcessIdentity> FindDaemons(std::string_view cluster);

// Sends SIGTERM, waits up to `patience`, then sends SIGKILL. kDeadlineExceeded names processes that
// are alive 5 s after that.
Status StopProcesses(const std::vector<ProcessIdentity>& processes, absl::Duration patience);

// Sends SIGKILL at once, and waits for the end.
Status KillProcess(const ProcessIdentity& process);

// The last `lines` lines of a file, for messages; empty if it cannot be read.
std::string LogTail(const std::string& path, int lines);

}  // namespace longhaul
