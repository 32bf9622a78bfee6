// The same service as charges.py, for Node: `node charges.mjs [PORT]`. Only what Node brings along.

import { createServer } from "node:http";

const charges = [];

function answer(response, status, value) {
  const body = JSON.stringify(value) + "\n";
  response.writeHead(status, { "Content-Type": "application/json", "Content-Length": Buffer.byteLength(body) });
  response.end(body);
}

const server = createServer(async (request, response) => {
  if (request.method !== "POST") return answer(response, 200, charges);
  const pieces = [];
  for await (const piece of request) pieces.push(piece);
  const { amount } = JSON.parse(Buffer.concat(pieces));
  const charge = { id: charges.length + 1, amount };
  charges.push(charge);
  answer(response, 201, charge);
});

server.listen(Number(process.argv[2] ?? 3000), "127.0.0.1", () => {
  console.log(`listening on ${server.address().port}`);
});
