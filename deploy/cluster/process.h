// Processes of a local cluster: external tools that run to their end, and daemons that outlive this
// program. All are started by an argument vector, without a shell.
//
// Every daemon carries the variable LONGHAUL_CLUSTER_DAEMON=<cluster> in its environment, so that
// `cluster down` finds it even when the state file is lost.
//
// RunTool and StartDaemon fork, which is not safe beside other threads: call these two from a
// program's main thread, while no other thread runs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "base/status.h"
#include "deploy/cluster/state_file.h"

namespace longhaul {

using Command = std::vector<std::string>;

// Returns the command line as a person would type it, with quotes around arguments with special
// characters.
std::string ToString(const Command& command);

// Runs a tool, for at most 30 s, and returns its standard output. command[0] is a path, or a name
// for FindTool. kNotFound: FindTool does not find the tool. kInternal: the tool failed; the message
// has the command and its standard error. kDeadlineExceeded: the tool was killed after 30 s.
StatusOr<std::string> RunTool(const Command& command);

// Returns the path of a tool, or "" if there is none. Searches PATH, then /usr/sbin, /sbin and
// /usr/local/sbin, then ../libexec/tools relative to the running program's folder (a portable
// bundle).
std::string FindTool(std::string_view name);

// Starts a daemon of `cluster` in a session of its own, and appends its output to `log_path`.
// command[0] is a path. The daemon is a child of this process until this process ends. kNotFound:
// the program does not exist. Other errors: by errno. Does not notice a program that fails later;
// ask IsAlive.
StatusOr<ProcessIdentity> StartDaemon(const Command& command, std::string_view cluster,
                                      const std::string& log_path);

// Returns whether this process, not a later one with the same id, is alive and not a zombie. Reaps
// a zombie child. False for pid 0.
bool IsAlive(const ProcessIdentity& process);

// Returns all live daemons of `cluster`, found by the variable in their environment. Does not see
// processes whose environment this user may not read.
std::vector<ProcessIdentity> FindDaemons(std::string_view cluster);

// Sends SIGTERM to all, waits up to `patience`, then sends SIGKILL to the processes that are still
// alive. kDeadlineExceeded: some are alive 5 s after SIGKILL; the message has their ids.
Status StopProcesses(const std::vector<ProcessIdentity>& processes, absl::Duration patience);

// Sends SIGKILL at once, and waits up to 5 s for the end. kDeadlineExceeded: the process is alive.
// OK if the process has ended before.
Status KillProcess(const ProcessIdentity& process);

// Returns the last `lines` lines of a file, for messages, or "" if the file cannot be read.
std::string LogTail(const std::string& path, int lines);

}  // namespace longhaul
