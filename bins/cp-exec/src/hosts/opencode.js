// Written by cp-exec. What it does not clearly allow does not run: every failure here throws.
import { spawnSync } from "node:child_process"

const [program, ...words] = PROGRAM

function ask(cwd, input, output) {
  const question = JSON.stringify({ cwd, input, output })
  const options = { input: question, encoding: "utf8", timeout: 30000, killSignal: "SIGKILL", maxBuffer: 1 << 26 }
  const { error, status, signal, stdout, stderr } = spawnSync(program, words, options)
  if (error || status !== 0) {
    throw new Error(stderr?.trim() || `cp-exec hook failed: ${error?.message ?? signal ?? `exit ${status}`}`)
  }
  return stdout
}

export const CpExec = async ({ directory }) => ({
  "tool.execute.before": async (input, output) => {
    const { decision, reason, args } = JSON.parse(ask(directory, input, output))
    if (decision !== "allow") throw new Error(reason || "cp-exec hook failed: it did not allow this")
    if (args === undefined) return
    if (args === null || typeof args !== "object" || Array.isArray(args)) throw new Error("cp-exec hook failed: args")
    for (const name of Object.keys(output.args)) delete output.args[name]
    Object.assign(output.args, args)
  },
  "tool.execute.after": async (input, output) => void ask(directory, input, output),
})
