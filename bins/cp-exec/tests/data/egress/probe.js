const dns = require('dns').promises, net = require('net');
const talk = host => new Promise((yes, no) => { const s = net.connect(80, host, () => s.write('x'));
  s.on('data', d => { yes(String(d)); s.end(); }); s.on('error', no); });
(async () => {
  console.log(await talk((await dns.resolve4('registry.test'))[0]), await talk('registry.test'));
  for (const f of [() => dns.resolve4('other.test'), () => talk('other.test'), () => talk('1.1.1.1')])
    console.log(await f().then(() => 'ESCAPED', () => 'denied'));
})();
