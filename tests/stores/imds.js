// A stand-in for a machine's managed identity. azurite accepts its tokens: azurite reads their claims, and checks no
// signature (`--oauth basic`).
// Usage: node imds.js, which prints the port and the token.
const http = require('http');

const encode = (value) => Buffer.from(JSON.stringify(value)).toString('base64url');
const now = Math.floor(Date.now() / 1000);
const claims = {
  aud: 'https://storage.azure.com',
  iss: 'https://sts.windows.net/ab1f708d-50f6-404c-a006-d71b2ac7a606/',
  iat: now - 60,
  nbf: now - 60,
  exp: now + 3600,
};
const token = `${encode({ typ: 'JWT', alg: 'RS256' })}.${encode(claims)}.c2lnbmF0dXJl`;

const server = http.createServer((request, response) => {
  const url = new URL(request.url, 'http://127.0.0.1');
  const isRight =
    url.pathname === '/metadata/identity/oauth2/token' &&
    request.headers.metadata === 'true' &&
    url.searchParams.get('resource') === 'https://storage.azure.com/';
  response.writeHead(isRight ? 200 : 400);
  response.end(isRight ? JSON.stringify({ access_token: token, expires_in: '3600' }) : '{}');
});
server.listen(0, '127.0.0.1', () => console.log(`${server.address().port} ${token}`));
